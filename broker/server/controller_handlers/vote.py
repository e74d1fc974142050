"""Vote: there is no election in a quorum of one."""

from typing import Any

from broker.common.errors import InvalidRequestError
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.VOTE, versions=range(3))
def vote(request: Request, context: RequestContext) -> Any:
    """Vote: refused.

    Behaviour: always INVALID_REQUEST: the one voter is this node, and it leads.
    Versions:  1 voter id · 2 pre-vote.
    Left out:  elections.
    """
    raise InvalidRequestError("This controller is the only voter of its quorum.")
