"""Every setting has a test in which it changes something; a setting without effect says so instead."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.setting import Config
from broker.config.topic_config import TopicConfig
from broker.config.topic_setting import TopicSetting
from tests.support.node_ids import missing_tests
from tests.unit.config import settings_proof
from tests.unit.config.settings_proof import BROKER, REACHES_TOPICS, TOPIC


@pytest.mark.parametrize(("config", "proofs"), [(BrokerConfig, BROKER), (TopicConfig, TOPIC)])
def test_every_setting_with_an_effect_names_its_proof(config: type[Config], proofs: dict[str, str]) -> None:
    effective = {setting.name for setting in config.settings() if setting.no_effect is None}
    assert effective - proofs.keys() == set(), "no test shows what they do"
    assert proofs.keys() - effective == set(), "proven, and no settings with an effect"


@pytest.mark.parametrize("proofs", [BROKER, TOPIC])
def test_the_proofs_exist(proofs: dict[str, str]) -> None:
    assert missing_tests(proofs.values()) == [], f"named in {settings_proof.__file__}"


def test_what_reaches_topics_is_proven_there() -> None:
    topics = {
        synonym: setting.name
        for setting in TopicConfig.settings()
        if isinstance(setting, TopicSetting)
        for synonym in setting.broker_synonyms
    }
    derived = {"log.roll.hours", "log.roll.jitter.hours", "log.retention.minutes"}  # of one that is a synonym
    strangers = [
        name
        for name, proof in BROKER.items()
        if proof == REACHES_TOPICS and topics.get(name) not in TOPIC and name not in derived
    ]
    assert strangers == []
