"""RemoveRaftVoter: the quorum of static voters does not change."""

from typing import Any

from broker.common.errors import UnsupportedVersionError
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.REMOVE_RAFT_VOTER, versions=range(1))
def remove_raft_voter(request: Request, context: RequestContext) -> Any:
    """RemoveRaftVoter: refused.

    Behaviour: always UNSUPPORTED_VERSION: kraft.version is 0, the voters are static.
    Versions:  0.
    Left out:  quorums of several controllers; those are made of Apache Kafka's.
    """
    raise UnsupportedVersionError("The voters of this quorum are static: kraft.version is 0.")
