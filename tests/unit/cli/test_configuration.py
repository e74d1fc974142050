from pathlib import Path

import pytest
import structlog

from broker.cli.configuration import load_config, warn_of_unknown_names
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.setting import ConfigError


def write(path: Path, **properties: str) -> Path:
    values = {**DEFAULT_SINGLE_NODE, **{name.replace("_", "."): value for name, value in properties.items()}}
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def test_later_places_win_over_earlier_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "server.properties", num_partitions="2", max_connections="2", fetch_max_bytes="2048")
    environment = {"WHERRY_MAX_CONNECTIONS": "3", "WHERRY_FETCH_MAX_BYTES": "4096"}
    config = load_config(file, environment, ["fetch.max.bytes=8192"])
    assert config.log_segment_bytes == 1 << 30
    assert (config.num_partitions, config.max_connections, config.fetch_max_bytes) == (2, 3, 8192)


def test_without_a_file_the_single_node_stands_in_for_it() -> None:
    config = load_config(None, {}, ["num.partitions=4"])
    assert config.properties == {**DEFAULT_SINGLE_NODE, "num.partitions": "4"}


def test_with_a_file_kafkas_defaults_hold(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=4\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.voters=4@localhost:9093\n"
    )
    config = load_config(file, {}, [])
    assert config.offsets_topic_replication_factor == 3
    assert config.log_dir == Path("/tmp/kafka-logs")


def test_files_that_cannot_be_read_are_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.properties: No such file or directory\.$"):
        load_config(tmp_path / "missing.properties", {}, [])
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match=r"binary: not a UTF-8 text file\.$"):
        load_config(tmp_path / "binary", {}, [])


def test_unknown_names_are_warned_about_once_and_together() -> None:
    config = BrokerConfig({**DEFAULT_SINGLE_NODE, "b.b": "1", "a.a": "2", "num.io.threads": "8"})
    with structlog.testing.capture_logs() as events:
        warn_of_unknown_names(config)
    assert [(event["event"], event["log_level"], event["names"]) for event in events] == [
        ("unknown_settings", "warning", ["a.a", "b.b"]),
        ("settings_without_effect", "info", ["num.io.threads"]),
    ]
