"""Each recorded request has the outcome it has at Apache Kafka: the same error codes at the same places, or a close.

`outcomes.tsv` is Apache Kafka's verdict (judge.py); `differences.tsv` names where ours is another one, and why.
"""

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.requests_corpus import recorded_requests

from .outcomes import Difference, outcomes, read_differences, read_table

pytestmark = pytest.mark.interop

TABLE = {row.name: row.outcome for row in read_table()}
DIFFERENCES = read_differences()


def difference_of(name: str) -> Difference | None:
    return next((each for each in DIFFERENCES if name.startswith(each.prefix)), None)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with BrokerProcess(tmp_path_factory.mktemp("outcomes")) as broker:
        found = {row.name: row.outcome for row in outcomes(broker.port)}
        assert broker.metric("broker_request_handler_failures_total") == 0, broker.log_tail()
        return found


def test_the_table_is_whole() -> None:
    assert list(TABLE) == [request.name for request in recorded_requests()]


@pytest.mark.parametrize("name", TABLE)
def test_outcome(ours: dict[str, str], name: str) -> None:
    difference = difference_of(name)
    assert ours[name] == (TABLE[name] if difference is None else difference.outcome)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.prefix)
def test_a_named_difference_is_one(difference: Difference) -> None:
    concerned = [TABLE[name] for name in TABLE if difference_of(name) is difference]
    assert concerned, "no request"
    assert all(outcome != difference.outcome for outcome in concerned), concerned
    assert difference.reason
