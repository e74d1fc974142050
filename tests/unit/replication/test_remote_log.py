import asyncio
import inspect
from pathlib import Path

import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.replication.remote_log import RemoteFetch, RemoteLog, RemoteRecords
from broker.tiering.remote_log_access import RemoteLogAccess
from tests.support.builders import ReplicaWorld
from tests.support.scripted_remote_log import ScriptedRemoteLog


def test_records_that_begin_where_they_were_asked_for_name_no_other_offset() -> None:
    found = RemoteRecords(b"records", None)
    assert (found.aborted, found.next_offset) == (None, None)


def test_a_question_may_be_refused_at_once_or_answered_later(tmp_path: Path) -> None:
    async def ask() -> None:
        world = ReplicaWorld(tmp_path)
        world.create_topic()
        scripted = ScriptedRemoteLog()
        port: RemoteLog = scripted
        scripted.refusal = ReplicaNotAvailableError("not yet")
        fetch = RemoteFetch(world.partition(), 3, 100, True, 9, False)
        with pytest.raises(ReplicaNotAvailableError):
            port.fetch(fetch)
        answer = port.fetch(fetch)
        scripted.fetches[0][1].set_result(RemoteRecords(b"records", None))
        assert (await answer).records == b"records"

    asyncio.run(ask())


@pytest.mark.parametrize("side", [RemoteLogAccess, ScriptedRemoteLog])
@pytest.mark.parametrize("name", ["fetch", "find_offset", "state_before"])
def test_tests_script_what_a_broker_has(side: type, name: str) -> None:
    """Under the same parameters, so that no scenario is about another port."""
    wanted, found = (inspect.signature(getattr(each, name)) for each in (RemoteLog, side))
    assert list(found.parameters) == list(wanted.parameters)
    assert inspect.iscoroutinefunction(getattr(side, name)) == inspect.iscoroutinefunction(getattr(RemoteLog, name))
