"""BrokerHeartbeat: a broker is alive, and says what it wants."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import ZERO_UUID
from broker.controller.cluster_control_manager import BrokerHeartbeat
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.BROKER_HEARTBEAT, versions=range(2))
async def broker_heartbeat(request: Request, context: RequestContext, controller: Controller) -> Any:
    """BrokerHeartbeat: keeps the session, and moves the broker between fenced, unfenced and shutting down (KIP-631).

    Behaviour: a broker is unfenced once it has applied the metadata up to its registration; until then it stays
      fenced, without an error.  A wish to shut down moves its leaderships away first, and is granted when every other
      active broker has applied that.  An epoch that is not the registered one is STALE_BROKER_EPOCH.
    Versions:  1 failed log directories.
    Left out:  2 (cordoned directories).
    """
    body = request.body
    reply = await controller.process_heartbeat(
        BrokerHeartbeat(
            broker_id=body.broker_id,
            broker_epoch=body.broker_epoch,
            current_metadata_offset=body.current_metadata_offset,
            want_fence=body.want_fence,
            want_shut_down=body.want_shut_down,
            offline_directories=tuple(directory or ZERO_UUID for directory in getattr(body, "offline_log_dirs", ())),
        )
    )
    return request.schema.BrokerHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
