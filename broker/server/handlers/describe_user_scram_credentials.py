"""DescribeUserScramCredentials: the SCRAM users in the metadata image (KIP-554)."""

from collections import Counter
from typing import Any

from broker.common.errors import ErrorCode
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=range(1))
def describe_user_scram_credentials(request: Request, context: RequestContext, cache: MetadataCache) -> Any:
    """DescribeUserScramCredentials: mechanisms and iterations per user, never secrets.

    Behaviour: no users asked for means all.  A user without credentials is RESOURCE_NOT_FOUND, one that is asked for
      twice DUPLICATE_RESOURCE.
    Versions:  0 only.
    Left out:  SASL itself: credentials are shown, not used.
    """
    stored: dict[str, list[tuple[int, int]]] = {}
    for (user, mechanism), credential in cache.image.scram_credentials.items():
        stored.setdefault(user, []).append((mechanism, credential.iterations))
    asked = [entry.name for entry in request.body.users or ()]
    counts = Counter(asked)
    schema = request.schema

    def describe(user: str) -> Any:
        error, message = ErrorCode.none, None
        if counts[user] > 1:
            error, message = ErrorCode.duplicate_resource, f"Cannot describe SCRAM credentials for {user} twice"
        elif user not in stored:
            error = ErrorCode.resource_not_found
            message = f"Attempt to describe a user credential that does not exist: {user}"
        infos = sorted(stored.get(user, ())) if error == ErrorCode.none else []
        return schema.DescribeUserScramCredentialsResult(
            user=user,
            error_code=error,
            error_message=message,
            credential_infos=tuple(
                schema.CredentialInfo(mechanism=mechanism, iterations=iterations) for mechanism, iterations in infos
            ),
        )

    return schema.DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(describe(user) for user in (dict.fromkeys(asked) or sorted(stored))),
    )
