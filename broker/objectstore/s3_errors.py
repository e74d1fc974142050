"""What S3, its client library and the network say, as errors of the port."""

from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from broker.objectstore.errors import (
    AccessDenied,
    BucketNotFound,
    Corrupt,
    NotFound,
    ObjectStoreError,
    PreconditionFailed,
    Refused,
    Throttled,
    Unavailable,
)

# A HEAD has no body to name an error in, so botocore gives its status as the code.
_CODES: Final[Mapping[str, type[ObjectStoreError]]] = {
    "NoSuchKey": NotFound,
    "NoSuchUpload": NotFound,
    "NotFound": NotFound,
    "404": NotFound,
    "NoSuchBucket": BucketNotFound,
    "PreconditionFailed": PreconditionFailed,
    "412": PreconditionFailed,
    "ConditionalRequestConflict": Unavailable,  # somebody writes the key at this moment: ask again
    "OperationAborted": Unavailable,
    "InvalidRange": Corrupt,
    "416": Corrupt,
    "SlowDown": Throttled,
    "ServiceUnavailable": Throttled,
    "Throttling": Throttled,
    "ThrottlingException": Throttled,
    "RequestLimitExceeded": Throttled,
    "TooManyRequests": Throttled,
    "429": Throttled,
    "503": Throttled,
    "AccessDenied": AccessDenied,
    "AllAccessDisabled": AccessDenied,
    "AccountProblem": AccessDenied,
    "ExpiredToken": AccessDenied,
    "InvalidToken": AccessDenied,
    "InvalidAccessKeyId": AccessDenied,
    "RequestTimeTooSkewed": AccessDenied,
    "SignatureDoesNotMatch": AccessDenied,
    "401": AccessDenied,
    "403": AccessDenied,
    "RequestTimeout": Unavailable,
    "BadDigest": Unavailable,  # damaged on the way, and not stored
    "InvalidDigest": Unavailable,
    "XAmzContentChecksumMismatch": Unavailable,
}
SESSION_REFUSED: Final = frozenset({"InvalidToken", "ExpiredToken"})

# What a request can end with besides an answer; anything else is a defect of ours.
FAILURES: Final = (ClientError, BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError, TimeoutError)


def code_of(error: BaseException) -> str:
    """The code in an answer of S3, or an empty string."""
    if not isinstance(error, ClientError):
        return ""
    response: Mapping[str, Any] = error.response
    return str(response.get("Error", {}).get("Code", ""))


def translated(error: BaseException, what: str) -> ObjectStoreError:
    """The port's error for a failed request; `what` says which one it was."""
    if isinstance(error, ClientError):
        return _answer(error, what)
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return AccessDenied(f"{what}: {error}")
    if isinstance(error, TimeoutError) and not str(error):
        return Unavailable(f"{what}: no answer in time")
    return Unavailable(f"{what}: {str(error) or type(error).__name__}")


def _answer(error: ClientError, what: str) -> ObjectStoreError:
    response: Mapping[str, Any] = error.response
    code = code_of(error)
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return answered(code, f"{what}: {code} {response.get('Error', {}).get('Message', '')}".rstrip(), status)


def answered(code: str, text: str, status: int = 500) -> ObjectStoreError:
    """The port's error for a code of S3, or for the HTTP status of one that is not known here."""
    kind = _CODES.get(code)
    if kind is None:
        kind = Unavailable if status >= 500 or status == 0 else _CODES.get(str(status), Refused)
    return kind(text)
