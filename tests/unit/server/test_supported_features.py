from broker.server.supported_features import FEATURE_ADVICE, SUPPORTED_FEATURES


def test_only_what_is_built_is_claimed() -> None:
    assert {name: tuple(levels) for name, levels in SUPPORTED_FEATURES.items()} == {
        "metadata.version": (7, 29),
        "kraft.version": (0, 1),
    }


def test_the_advice_names_the_level_and_the_switches() -> None:
    assert "at most 29 (4.2-IV1)" in FEATURE_ADVICE
    assert "--feature eligible.leader.replicas.version=0" in FEATURE_ADVICE
