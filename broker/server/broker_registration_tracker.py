"""Registers this broker again when the cluster can keep more of a registration (Kafka's class of that name)."""

from collections.abc import Callable

import structlog

from broker.common.identifiers import BrokerId
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_version import MetadataVersion

log = structlog.get_logger(__name__)


class BrokerRegistrationTracker:
    """Below metadata.version 3.7-IV2 a registration has no log directories (KIP-858); above it needs them.

    `register_again` asks for one more registration of this process, which keeps its epoch and stays unfenced.
    """

    def __init__(
        self, broker_id: BrokerId, broker_epoch: Callable[[], int], register_again: Callable[[], None]
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._register_again = register_again

    def on_metadata(self, _delta: MetadataDelta, image: MetadataImage) -> None:
        """Look at our own registration; one of another process of this id is not ours to mend."""
        registration = image.brokers.get(self._broker_id)
        if registration is None or registration.epoch != self._broker_epoch() or registration.directories:
            return
        if image.features.metadata_version >= MetadataVersion.IBP_3_7_IV2:
            log.info("broker_registers_again", reason="metadata.version now has log directories")
            self._register_again()
