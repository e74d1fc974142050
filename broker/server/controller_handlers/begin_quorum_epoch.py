"""BeginQuorumEpoch: nobody else can lead a quorum of one."""

from typing import Any

from broker.common.errors import InvalidRequestError
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.BEGIN_QUORUM_EPOCH, versions=range(2))
def begin_quorum_epoch(request: Request, context: RequestContext) -> Any:
    """BeginQuorumEpoch: refused.

    Behaviour: always INVALID_REQUEST: the one voter is this node, and it leads.
    Versions:  1 voter's directory, the leader's addresses.
    Left out:  elections.
    """
    raise InvalidRequestError("This controller is the only voter of its quorum.")
