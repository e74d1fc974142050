from broker.config.accepted import WITHOUT_EFFECT, reason_without_effect, refusals


def test_exact_names_and_beginnings_have_reasons() -> None:
    assert reason_without_effect("num.io.threads") == "One event loop does this work; there are no threads to count."
    assert reason_without_effect("ssl.keystore.location") == WITHOUT_EFFECT["ssl.*"]
    assert reason_without_effect("listener.name.internal.sasl.jaas.config") == WITHOUT_EFFECT["listener.name.*"]
    assert reason_without_effect("ssl") is None
    assert reason_without_effect("no.such.setting") is None


def test_values_that_cannot_be_ignored_are_refused() -> None:
    assert refusals({"create.topic.policy.class.name": "com.example.Policy"}) == [
        "create.topic.policy.class.name='com.example.Policy': policies are Java classes and cannot be enforced here."
    ]


def test_empty_values_of_the_same_names_are_fine() -> None:
    assert refusals({"authorizer.class.name": " ", "remote.log.storage.system.enable": "true"}) == []
