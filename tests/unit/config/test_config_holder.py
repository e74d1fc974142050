from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.config_holder import ConfigHolder


def test_listeners_see_the_old_and_the_new_config() -> None:
    before = BrokerConfig(DEFAULT_SINGLE_NODE)
    after = before.with_overrides({"max.connections": "5"})
    holder = ConfigHolder(before)
    seen = []
    holder.on_change(lambda old, new: seen.append((old.max_connections, new.max_connections, holder.current is new)))
    holder.update(after)
    assert holder.current is after
    assert seen == [(2147483647, 5, True)]
