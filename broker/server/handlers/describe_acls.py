"""DescribeAcls: there is no authorizer to ask."""

from typing import Any, Final

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"  # Kafka's words; tools show them


@handles(ApiKey.DESCRIBE_ACLS, versions=range(1, 4))
def describe_acls(request: Request, context: RequestContext) -> Any:
    """DescribeAcls: SECURITY_DISABLED, as Kafka answers without an authorizer; user interfaces probe with it.

    Behaviour: always SECURITY_DISABLED.
    Versions:  1 pattern types · 2 flexible · 3 user resources.
    Left out:  ACLs.
    """
    return request.schema.DescribeAclsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, resources=()
    )
