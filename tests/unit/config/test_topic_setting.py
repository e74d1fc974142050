from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.setting import UpdateMode
from broker.config.topic_setting import TopicSetting
from broker.config.value_types import INT


def test_a_setting_may_have_its_default_from_the_broker() -> None:
    setting = TopicSetting(
        "size",
        INT,
        default=3,
        doc="A size.",
        synonyms=("num.partitions",),
        broker_value=lambda broker: broker.num_partitions,
    )
    assert setting.update is UpdateMode.CLUSTER_WIDE
    assert setting.broker_synonyms == ("num.partitions",)
    assert setting.broker_value is not None
    assert setting.broker_value(BrokerConfig({**DEFAULT_SINGLE_NODE, "num.partitions": "7"})) == 7


def test_without_a_brokers_setting_it_stands_alone() -> None:
    setting = TopicSetting("size", INT, default=3, doc="A size.")
    assert (setting.broker_synonyms, setting.broker_value, setting.synonyms) == ((), None, ("size",))
