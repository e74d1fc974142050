"""CreateAcls: there is no authorizer to keep them."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.handlers.describe_acls import NO_AUTHORIZER
from broker.server.request_context import RequestContext


@handles(ApiKey.CREATE_ACLS, versions=range(1, 4))
def create_acls(request: Request, context: RequestContext) -> Any:
    """CreateAcls: SECURITY_DISABLED for every entry.

    Behaviour: always SECURITY_DISABLED; nothing is stored.
    Versions:  1 pattern types · 2 flexible · 3 user resources.
    Left out:  ACLs.
    """
    schema = request.schema
    refused = schema.AclCreationResult(error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER)
    return schema.CreateAclsResponse(throttle_time=NO_THROTTLE, results=(refused,) * len(request.body.creations))
