from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.network.connection_quotas import TOO_MANY, TOO_MANY_FROM_ADDRESS, ConnectionQuotas


def bounds(**settings: object) -> BrokerConfig:
    """The broker's own settings, as the socket server passes them."""
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return BrokerConfig({**DEFAULT_SINGLE_NODE, **given})


def test_the_broker_wide_bound() -> None:
    quotas = ConnectionQuotas()
    for address in ("10.0.0.1", "10.0.0.2"):
        assert quotas.refusal(address, bounds(max_connections=2)) is None
        quotas.add(address)
    assert quotas.refusal("10.0.0.3", bounds(max_connections=2)) == TOO_MANY
    quotas.remove("10.0.0.1")
    assert quotas.refusal("10.0.0.3", bounds(max_connections=2)) is None
    assert quotas.count == 1


def test_the_bound_of_one_address() -> None:
    quotas = ConnectionQuotas()
    quotas.add("10.0.0.1")
    assert quotas.refusal("10.0.0.1", bounds(max_connections_per_ip=1)) == TOO_MANY_FROM_ADDRESS
    assert quotas.refusal("10.0.0.2", bounds(max_connections_per_ip=1)) is None
    assert quotas.count_from("10.0.0.1") == 1
    quotas.remove("10.0.0.1")
    assert quotas.count_from("10.0.0.1") == 0


def test_an_override_replaces_the_bound_for_its_address() -> None:
    quotas = ConnectionQuotas()
    settings = bounds(max_connections_per_ip=1, max_connections_per_ip_overrides="10.0.0.1:2,10.0.0.9:0")
    quotas.add("10.0.0.1")
    assert quotas.refusal("10.0.0.1", settings) is None
    quotas.add("10.0.0.1")
    assert quotas.refusal("10.0.0.1", settings) == TOO_MANY_FROM_ADDRESS
    assert quotas.refusal("10.0.0.9", settings) == TOO_MANY_FROM_ADDRESS
