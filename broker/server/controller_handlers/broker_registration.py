"""BrokerRegistration: a broker's process joins the cluster."""

from typing import Any

from broker.common.errors import ErrorCode, InvalidRegistrationError
from broker.common.identifiers import ZERO_UUID
from broker.controller.cluster_control_manager import BrokerRegistrationRequest
from broker.controller.controller import Controller
from broker.metadata.broker_registration import Endpoint, SecurityProtocol, VersionRange
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.BROKER_REGISTRATION, versions=range(5))
async def broker_registration(request: Request, context: RequestContext, controller: Controller) -> Any:
    """BrokerRegistration: answers the broker epoch (KIP-631).

    Behaviour: the broker is fenced at first.  Another process with the same id is DUPLICATE_BROKER_REGISTRATION while
      the first is unfenced and heard, but the broker in the controller's own process is replaced at once after a
      restart.  The same process again keeps its epoch and fencing.  No, duplicate, reserved or foreign directories are
      INVALID_REGISTRATION, a finalized feature the broker lacks UNSUPPORTED_VERSION, another cluster
      INCONSISTENT_CLUSTER_ID.
    Versions:  1 migration from ZooKeeper · 2 log directories · 3 previous broker epoch · 4 features with minimum 0.
    Left out:  migration from ZooKeeper (INVALID_REGISTRATION); cordoned directories.
    """
    body = request.body
    if getattr(body, "is_migrating_zk_broker", False):
        raise InvalidRegistrationError("Brokers cannot migrate from ZooKeeper to this controller.")
    broker_epoch = await controller.register_broker(
        BrokerRegistrationRequest(
            broker_id=body.broker_id,
            cluster_id=body.cluster_id,
            incarnation_id=body.incarnation_id or ZERO_UUID,
            listeners={
                listener.name: Endpoint(listener.host, listener.port, _security_protocol(listener.security_protocol))
                for listener in body.listeners
            },
            features={
                feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
                for feature in body.features
            },
            rack=body.rack,
            directories=tuple(directory or ZERO_UUID for directory in getattr(body, "log_dirs", ())),
            previous_broker_epoch=getattr(body, "previous_broker_epoch", -1),
        )
    )
    return request.schema.BrokerRegistrationResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, broker_epoch=broker_epoch
    )


def _security_protocol(number: int) -> SecurityProtocol:
    try:
        return SecurityProtocol(number)
    except ValueError:
        raise InvalidRegistrationError(f"Unknown security protocol {number}") from None
