"""ControllerState: the cluster as the controller's commands see it."""

from collections.abc import Mapping, Sequence

from broker.controller.brokers_to_isrs import BrokersToIsrs
from broker.controller.topic_names import UnifiedNames
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_loader import MetadataLoader
from broker.schemas.cluster_metadata import MetadataRecord, RegisterBrokerRecord


class ControllerState:
    """The image with every command applied, durable or not yet, and indexes over it.

    Only `Controller` replays onto it; managers read.  Since images are immutable, going back to an older one is an
    assignment (`revert`): Apache's timeline structures have no counterpart here.
    """

    def __init__(self) -> None:
        self._loader = MetadataLoader()
        self.brokers_to_isrs = BrokersToIsrs()
        self.unified_names = UnifiedNames()
        # Where each broker's latest registration stands in the log: "caught up" means applied at least to there.
        self.registration_offsets: Mapping[int, int] = {}

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    @property
    def is_in_transaction(self) -> bool:
        return self._loader.is_in_transaction

    def replay(self, records: Sequence[MetadataRecord], base_offset: int, epoch: int) -> None:
        """Apply one batch whose first record has `base_offset`.  MetadataFault when the records are impossible."""
        loaded = self._loader.load_batch(records, base_offset + len(records) - 1, epoch)
        registered = {
            record.broker_id: base_offset + index
            for index, record in enumerate(records)
            if isinstance(record, RegisterBrokerRecord)
        }
        if registered:
            self.registration_offsets = {**self.registration_offsets, **registered}
        if loaded is not None:
            self.brokers_to_isrs.update(loaded.delta.topics_delta)
            self.unified_names.update(loaded.delta.topics_delta)

    def skip(self, last_offset: int, epoch: int) -> None:
        """Move past a control batch, which changes nothing but the offset."""
        self._loader.load_batch((), last_offset, epoch)

    def load_snapshot(self, records: Sequence[MetadataRecord], offset: int, epoch: int) -> None:
        """Start from a snapshot that ends with the record at `offset`."""
        loaded = self._loader.load_snapshot(records, offset, epoch)
        self.registration_offsets = dict.fromkeys(loaded.image.brokers, offset)
        self.brokers_to_isrs.rebuild(loaded.image.topics)
        self.unified_names.rebuild(loaded.image.topics)

    def revert(self, image: MetadataImage, registration_offsets: Mapping[int, int]) -> None:
        """Go back to an earlier state: the records after it could not be written."""
        self._loader = MetadataLoader(image)
        self.registration_offsets = registration_offsets
        self.brokers_to_isrs.rebuild(image.topics)
        self.unified_names.rebuild(image.topics)
