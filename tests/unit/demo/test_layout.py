import stat
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.properties import parse_properties
from broker.config.setting import ConfigError
from broker.config.topic_config import TopicConfig
from broker.demo.layout import Layout


def test_three_brokers_in_three_zones_and_the_last_one_has_the_controller(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert [(node.node_id, node.rack, node.port, node.metrics_port, node.has_controller) for node in layout.nodes] == [
        (1, "zone-a", 9092, 9404, False),
        (2, "zone-b", 9093, 9405, False),
        (3, "zone-c", 9094, 9406, True),
    ]
    assert (layout.controller_port, layout.bootstrap) == (9190, "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094")


def test_more_brokers_share_the_zones(tmp_path: Path) -> None:
    layout = Layout(tmp_path, brokers=5)
    assert [node.zone for node in layout.nodes] == ["a", "b", "c", "a", "b"]
    assert [node.node_id for node in layout.nodes_of_zone("a")] == [1, 4]


def test_one_broker_is_its_own_controller_and_has_one_replica(tmp_path: Path) -> None:
    layout = Layout(tmp_path, brokers=1)
    settings = layout.settings_of(layout.node(1))
    assert settings["process.roles"] == "broker,controller"
    assert (settings["default.replication.factor"], settings["min.insync.replicas"]) == ("1", "1")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"brokers": 0}, "--brokers 0: valid values are"),
        ({"brokers": 10}, "--brokers 10: valid values are"),
        ({"port": 80}, "--port 80: valid values are"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Layout(tmp_path, **options)  # type: ignore[arg-type]


def test_brokers_understand_every_setting_of_their_files(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "with space", overrides={"log.retention.hours": "1"})
    assert not layout.prepare()
    for node in layout.nodes:
        file = layout.properties_file_of(node)
        config = BrokerConfig(parse_properties(file.read_text()))
        assert (config.unknown_names, config.node_id, config.broker_rack) == ((), node.node_id, node.rack)
        assert config.rwsm_config_bucket == (tmp_path / "with space/buckets" / node.rack).as_uri()
        assert config.rsm_config_bucket == (tmp_path / "with space/buckets/standard").as_uri()
        assert config.wherry_price_list == "s3-express"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, "there may be keys in it"
        assert layout.settings_of(node)["log.retention.hours"] == "1"
    for name in ("zone-a", "zone-b", "zone-c", "standard"):
        assert (tmp_path / "with space/buckets" / name).is_dir()


def test_faults_name_a_directory_as_stores_do(tmp_path: Path) -> None:
    bucket = Layout(tmp_path / "with space").fast_buckets["b"]
    assert bucket.name == f"file://{tmp_path}/with space/buckets/zone-b"


def test_topics_have_settings_that_exist(tmp_path: Path) -> None:
    wal, classic = Layout(tmp_path).topics()
    assert (wal.name, classic.name) == ("orders", "orders-classic")
    for topic in (wal, classic):
        assert topic.configs.keys() <= {setting.name for setting in TopicConfig.settings()}
    assert (wal.configs["remote.wal.enable"], wal.configs["remote.storage.enable"]) == ("true", "true")
    assert not {"remote.wal.enable", "remote.storage.enable"} & classic.configs.keys()


def test_buckets_may_be_in_another_directory(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data", store=str(tmp_path / "store"))
    layout.prepare()
    assert (tmp_path / "store/zone-a").is_dir()
    assert layout.standard_bucket.url == (tmp_path / "store/standard").as_uri()


def test_a_bucket_of_s3_is_shared(tmp_path: Path) -> None:
    layout = Layout(tmp_path, store="s3://wherry/")
    settings = layout.settings_of(layout.node(2))
    assert settings["rwsm.config.bucket"] == settings["rsm.config.bucket"] == "s3://wherry"
    assert settings["remote.wal.combine.economy.linger.ms"] == "500", "few and large objects"
    assert settings["remote.wal.storage.manager.class.name"] == "S3WalStorageManager"
    assert settings["remote.log.storage.manager.class.name"] == "S3RemoteStorageManager"
    assert "wherry.price.list" not in settings, "the store's own prices"
    BrokerConfig(settings)
    layout.prepare()
    assert not (tmp_path / "buckets").exists()


def test_state_is_for_the_same_layout_again(tmp_path: Path) -> None:
    assert not Layout(tmp_path).prepare()
    assert Layout(tmp_path, port=19092).prepare(), "ports may change"
    with pytest.raises(ConfigError, match="made with --brokers 3: use the same"):
        Layout(tmp_path, brokers=5).prepare()
    with pytest.raises(ConfigError, match="made with --brokers 3: use the same"):
        Layout(tmp_path, store="s3://b").prepare()
    other = tmp_path / "other"
    Layout(other, store="s3://b").prepare()
    with pytest.raises(ConfigError, match="made with --brokers 3 --store s3://b: use the same"):
        Layout(other).prepare()
