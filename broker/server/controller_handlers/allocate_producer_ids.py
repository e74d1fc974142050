"""AllocateProducerIds: a block of producer ids for a broker."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.ALLOCATE_PRODUCER_IDS, versions=range(1))
async def allocate_producer_ids(request: Request, context: RequestContext, controller: Controller) -> Any:
    """AllocateProducerIds: the next thousand ids that nobody has had (KIP-730).

    Behaviour: an epoch that is not the registered one is STALE_BROKER_EPOCH.
    Versions:  0.
    Left out:  —
    """
    block = await controller.allocate_producer_ids(request.body.broker_id, request.body.broker_epoch)
    return request.schema.AllocateProducerIdsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id_start=block.first_id,
        producer_id_len=block.size,
    )
