import pytest

from broker.config.network_settings import NetworkSettings
from broker.config.setting import ConfigError
from broker.config.value_types import Listener


def test_kafkas_default_listener_is_every_interface() -> None:
    assert NetworkSettings({}).listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)


def test_queued_bytes_are_bounded_unless_asked_otherwise() -> None:
    assert NetworkSettings({}).queued_max_request_bytes == 268_435_456
    assert NetworkSettings({"queued.max.request.bytes": "-1"}).queued_max_request_bytes == -1
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes='-2': valid values are \[-1,\.\.\.\]\."):
        NetworkSettings({"queued.max.request.bytes": "-2"})


def test_fetch_bytes_have_a_lower_bound() -> None:
    with pytest.raises(ConfigError, match=r"fetch\.max\.bytes='1023': valid values are \[1024,\.\.\.\]\."):
        NetworkSettings({"fetch.max.bytes": "1023"})
