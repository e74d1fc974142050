"""UnregisterBroker: a broker that will not come back leaves the cluster."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.UNREGISTER_BROKER, versions=range(1))
async def unregister_broker(request: Request, context: RequestContext, controller: Controller) -> Any:
    """UnregisterBroker: forgets a broker's registration (KIP-631).

    Behaviour: an id that is not registered is BROKER_ID_NOT_REGISTERED.  Its replicas leave the in-sync sets.
    Versions:  0.
    Left out:  —
    """
    await controller.unregister_broker(request.body.broker_id)
    return request.schema.UnregisterBrokerResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None
    )
