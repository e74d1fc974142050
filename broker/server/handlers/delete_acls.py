"""DeleteAcls: there is no authorizer to delete from."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.handlers.describe_acls import NO_AUTHORIZER
from broker.server.request_context import RequestContext


@handles(ApiKey.DELETE_ACLS, versions=range(1, 4))
def delete_acls(request: Request, context: RequestContext) -> Any:
    """DeleteAcls: SECURITY_DISABLED for every filter.

    Behaviour: always SECURITY_DISABLED.
    Versions:  1 pattern types · 2 flexible · 3 user resources.
    Left out:  ACLs.
    """
    schema = request.schema
    refused = schema.DeleteAclsFilterResult(
        error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, matching_acls=()
    )
    return schema.DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=(refused,) * len(request.body.filters))
