import asyncio
from typing import Any

import pytest

from broker.common.errors import CoordinatorLoadInProgressError, ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.server.handlers.init_producer_id import init_producer_id
from tests.unit.server.link_support import ask, request_of


class FakeIds:
    def __init__(self, *ids: int) -> None:
        self.ids = list(ids)

    async def generate_producer_id(self) -> int:
        if not self.ids:
            raise CoordinatorLoadInProgressError()
        return self.ids.pop(0)


def get(version: int, ids: FakeIds, transactional_id: str | None = None) -> Any:
    given = request_of(
        ApiKey.INIT_PRODUCER_ID,
        version,
        transactional_id=transactional_id,
        transaction_timeout=milliseconds(60_000),
        producer_id=-1,
        producer_epoch=-1,
    )
    return asyncio.run(ask(init_producer_id, given, ids))


@pytest.mark.parametrize("version", range(6))
def test_an_idempotent_producer_gets_a_fresh_id(version: int) -> None:
    answer = get(version, FakeIds(4_711))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.none, 4_711, 0)


def test_without_a_block_the_client_comes_back() -> None:
    answer = get(4, FakeIds())
    assert answer.error_code == ErrorCode.coordinator_load_in_progress
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("transactional_id", ["t", ""])
def test_a_transactional_id_is_refused_for_good(transactional_id: str) -> None:
    ids = FakeIds(1)
    answer = get(4, ids, transactional_id)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.invalid_request, -1)
    assert ids.ids == [1]
