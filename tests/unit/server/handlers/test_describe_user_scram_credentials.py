import asyncio
from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.schemas.cluster_metadata import UserScramCredentialRecord
from broker.server.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from tests.unit.server.link_support import ask, cache_with, request_of, schema_of


def credential(user: str, mechanism: int, iterations: int) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=iterations
    )


RECORDS = credential("b", 2, 8192), credential("a", 1, 4096), credential("b", 1, 4096)


def get(*users: str, everyone: bool = False, records: Any = RECORDS) -> Any:
    schema = schema_of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)
    asked = None if everyone else tuple(schema.UserName(name=user) for user in users)
    given = request_of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
    answer = asyncio.run(ask(describe_user_scram_credentials, given, cache_with(*records)))
    assert answer.error_code == ErrorCode.none
    return [
        (each.user, each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in answer.results
    ]


def test_nobody_has_credentials() -> None:
    assert get(everyone=True, records=()) == []


def test_everyone() -> None:
    everyone = [("a", ErrorCode.none, [(1, 4096)]), ("b", ErrorCode.none, [(1, 4096), (2, 8192)])]
    assert get(everyone=True) == everyone
    assert get() == everyone


def test_those_asked_for() -> None:
    assert get("c", "a", "b", "b") == [
        ("c", ErrorCode.resource_not_found, []),
        ("a", ErrorCode.none, [(1, 4096)]),
        ("b", ErrorCode.duplicate_resource, []),
    ]
