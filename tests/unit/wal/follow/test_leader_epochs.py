"""The port itself has nothing to run: that both who answer it fit is a matter of types."""

from broker.server.wal.remote_leader_epochs import RemoteLeaderEpochs
from broker.wal.follow.leader_epochs import LeaderEpochs
from tests.unit.wal.fetcher_world import DictEpochs


def test_who_answers_fits_the_port() -> None:
    answering: tuple[type[LeaderEpochs], ...] = (RemoteLeaderEpochs, DictEpochs)
    assert len(answering) == 2
