"""QuotaManagers: the quotas this broker holds its clients to (KIP-13, KIP-124; Kafka's QuotaFactory.QuotaManagers)."""

from collections.abc import Callable
from typing import Final

from broker.common.quota_rate import MILLISECONDS
from broker.config.broker_config import BrokerConfig
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.frames import Frame
from broker.server.client_quota_manager import ClientQuotaManager, limits_of
from broker.server.request_charge import RequestCharge
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"


class QuotaManagers:
    """Follows the metadata; while no quota is set, `is_configured` is all that anybody looks at.

    `stopwatch` tells the seconds that requests take of the event loop, which is the one thread that quotas of
    request_percentage share out.
    """

    def __init__(self, config: BrokerConfig, monotonic_ms: Callable[[], int], stopwatch: Callable[[], float]) -> None:
        self.stopwatch = stopwatch
        self.is_configured = False
        self.produce = ClientQuotaManager(config, monotonic_ms)
        self.fetch = ClientQuotaManager(config, monotonic_ms)
        # At most one sample long (ClientRequestQuotaManager): whoever took much of the broker is slowed, not shut out.
        self.request = ClientQuotaManager(config, monotonic_ms, config.quota_window_size_seconds * MILLISECONDS)
        self.exempt_seconds = 0.0

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over quotas that changed."""
        if not delta.changed_client_quotas:
            return
        self.produce.set_limits(limits_of(image.client_quotas, PRODUCER_BYTE_RATE))
        self.fetch.set_limits(limits_of(image.client_quotas, CONSUMER_BYTE_RATE))
        self.request.set_limits(limits_of(image.client_quotas, REQUEST_PERCENTAGE))
        # Those of controller_mutation_rate count, too: the controller's answers tell delays.
        self.is_configured = any(kind != "ip" for entity in image.client_quotas for kind, _ in entity)

    def charge_of(self, frame: Frame, context: RequestContext, slot: ResponseSlot) -> RequestCharge:
        """What the request will cost its client."""
        user = context.principal.partition(":")[2]
        body_bytes = len(frame.buffer) - frame.body_position
        return RequestCharge(self, slot, user, frame.client_id or "", body_bytes)
