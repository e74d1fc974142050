"""MetadataLoader: batches of the metadata log, and snapshots of it, into images; transactions held back until they end.

The observer of a broker and the recovery of a controller read the same log; both read it through this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)


@dataclass(frozen=True, slots=True)
class LoadedMetadata:
    """A new image and what is different in it."""

    delta: MetadataDelta
    image: MetadataImage


class MetadataLoader:
    """Holds the image of everything loaded so far.

    Between BeginTransaction and EndTransaction (KIP-868) records are kept aside: `image` stays at the record before
    the transaction, and moves past all of it at once when it ends, or past it unchanged when it aborts.
    """

    def __init__(self, image: MetadataImage = MetadataImage.EMPTY) -> None:
        self.image = image
        self.end_offset = image.offset + 1  # of everything loaded, records of an open transaction included
        self._transaction: list[MetadataRecord] | None = None

    @property
    def is_in_transaction(self) -> bool:
        return self._transaction is not None

    def load_batch(self, records: Sequence[MetadataRecord], last_offset: int, epoch: int) -> LoadedMetadata | None:
        """Load one whole batch; None while its records belong to an open transaction.

        A batch of control records is loaded as one without records.  MetadataFault when a record is impossible;
        the image is then what it was.
        """
        delta = MetadataDelta(self.image)
        transaction = None if self._transaction is None else list(self._transaction)
        published_before_transaction = False
        for index, record in enumerate(records):
            if isinstance(record, BeginTransactionRecord):
                if transaction is not None:
                    raise MetadataFault("a transaction begins inside another")
                transaction = []
                published_before_transaction = index > 0
            elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                if transaction is None:
                    raise MetadataFault("a transaction ends that did not begin")
                if isinstance(record, EndTransactionRecord):
                    _replay_all(delta, transaction)
                transaction = None
            elif transaction is not None:
                transaction.append(record)
            else:
                delta.replay(record)
        self._transaction = transaction
        self.end_offset = last_offset + 1
        if transaction is not None and not published_before_transaction:
            return None
        # Records in front of a Begin in the same batch are flushed: the image then ends somewhere inside the batch.
        offset = last_offset if transaction is None else last_offset - len(transaction) - 1
        self.image = delta.apply(offset, epoch)
        return LoadedMetadata(delta, self.image)

    def load_snapshot(self, records: Iterable[MetadataRecord], offset: int, epoch: int) -> LoadedMetadata:
        """Replace the image by a snapshot that ends at `offset` (inclusive); the delta is the difference."""
        fresh = MetadataDelta(MetadataImage.EMPTY)
        _replay_all(fresh, records)
        old, self.image = self.image, fresh.apply(offset, epoch)
        self.end_offset = offset + 1
        self._transaction = None
        return LoadedMetadata(MetadataDelta.between(old, self.image), self.image)


def _replay_all(delta: MetadataDelta, records: Iterable[MetadataRecord]) -> None:
    for record in records:
        delta.replay(record)
