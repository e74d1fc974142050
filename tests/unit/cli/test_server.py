import os
import signal
from collections.abc import Callable, Iterator

import pytest
import structlog

import broker.node
from broker.cli import main, server
from broker.config.broker_config import BrokerConfig


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BrokerConfig]]:
    """The configs the broker was started with; nothing is run."""
    configs: list[BrokerConfig] = []

    def run(config: BrokerConfig, *, announce: Callable[[str], None]) -> int:
        configs.append(config)
        announce("ready")
        return 3

    monkeypatch.setattr(broker.node, "run", run)
    monkeypatch.setattr(server, "configure_logging", lambda level: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    for name in [name for name in os.environ if name.startswith("WHERRY_")]:
        monkeypatch.delenv(name)
    with structlog.testing.capture_logs():
        yield configs


def test_server_runs_what_it_was_told_and_returns_the_exit_code(
    started: list[BrokerConfig], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERRY_NUM_PARTITIONS", "6")
    assert main(["server", "--override", "node.id=9", "--override", "max.connections=7"]) == 3
    assert [(config.node_id, config.max_connections, config.num_partitions) for config in started] == [(9, 7, 6)]
    assert capsys.readouterr().out == "ready\n"


def test_wrong_configuration_is_a_sentence_and_exit_code_two(
    started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "--override", "log.segment.bytes=3", "--override", "num.partitions=0"]) == 2
    captured = capsys.readouterr()
    assert captured.err == (
        "wherry: log.segment.bytes='3': valid values are [1048576,...].\n"
        "wherry: num.partitions='0': valid values are [1,...].\n"
    )
    assert (captured.out, started) == ("", [])


def test_a_node_that_cannot_run_is_a_sentence_and_exit_code_one(
    started: list[BrokerConfig], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(config: BrokerConfig, *, announce: Callable[[str], None]) -> int:
        raise broker.node.NodeError("the port is taken")

    monkeypatch.setattr(broker.node, "run", run)
    assert main(["server"]) == 1
    assert capsys.readouterr() == ("", "wherry: the port is taken\n")


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("wherry ")


def test_a_command_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
