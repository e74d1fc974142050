import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.schemas.cluster_metadata import ClientQuotaEntity, ClientQuotaRecord
from broker.server.handlers.describe_client_quotas import describe_client_quotas
from tests.unit.server.link_support import ask, cache_with, request_of, schema_of


def quota(rate: float, **entity: str | None) -> ClientQuotaRecord:
    parts = tuple(
        ClientQuotaEntity(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
    )
    return ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=rate, remove=False)


RECORDS = quota(1.0, user="a"), quota(2.0, user=None), quota(3.0, user="a", client_id="c"), quota(4.0, ip="10.0.0.1")


def get(
    *components: tuple[str, int, str | None], strict: bool = False, version: int = 1, records: Any = RECORDS
) -> Any:
    schema = schema_of(ApiKey.DESCRIBE_CLIENT_QUOTAS, version)
    entries = tuple(
        schema.ComponentData(entity_type=kind, match_type=match_type, match=name)
        for kind, match_type, name in components
    )
    given = request_of(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=entries, strict=strict)
    return asyncio.run(ask(describe_client_quotas, given, cache_with(*records)))


@pytest.mark.parametrize("version", [0, 1])
def test_without_quotas_the_answer_is_empty(version: int) -> None:
    answer = get(version=version, records=())
    assert (answer.error_code, answer.entries) == (ErrorCode.none, ())


@pytest.mark.parametrize(
    ("components", "strict", "rates"),
    [
        ((), False, [1.0, 2.0, 3.0, 4.0]),
        ((("user", 0, "a"),), False, [1.0, 3.0]),
        ((("user", 0, "a"),), True, [1.0]),
        ((("user", 1, None),), False, [2.0]),
        ((("user", 2, None),), False, [1.0, 2.0, 3.0]),
        ((("user", 2, None), ("client-id", 0, "c")), True, [3.0]),
        ((("ip", 0, "10.0.0.2"),), False, []),
    ],
)
def test_filters(components: Any, strict: bool, rates: list[float]) -> None:
    answer = get(*components, strict=strict)
    assert [entry.values[0].value for entry in answer.entries] == rates


def test_an_entry_in_full() -> None:
    (entry,) = get(("client-id", 2, None)).entries
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", "a"), ("client-id", "c")]
    assert entry.values[0].key == "producer_byte_rate"


@pytest.mark.parametrize(
    ("components", "text"),
    [
        ((("host", 0, "a"),), "unknown entity type"),
        ((("user", 0, "a"), ("user", 0, "b")), "named twice"),
        ((("user", 7, "a"),), "match type 7"),
    ],
)
def test_what_cannot_be_asked(components: Any, text: str) -> None:
    answer = get(*components)
    assert (answer.error_code, answer.entries) == (ErrorCode.invalid_request, None)
    assert text in answer.error_message
