from broker.server.supported_features import SUPPORTED_FEATURES, feature_advice, unsupported_features


def test_only_what_is_built_is_claimed() -> None:
    assert {name: tuple(levels) for name, levels in SUPPORTED_FEATURES.items()} == {
        "metadata.version": (7, 29),
        "kraft.version": (0, 1),
    }


def test_what_is_lacking_is_named_with_what_there_is() -> None:
    finalized = {"transaction.version": 2, "metadata.version": 33, "kraft.version": 1}
    assert unsupported_features(finalized) == [
        "metadata.version=33 (this broker: 7 to 29)",
        "transaction.version=2 (this broker: 0)",
    ]
    assert unsupported_features({"metadata.version": 29, "kraft.version": 1}) == []


def test_the_advice_is_a_command_that_can_be_copied() -> None:
    assert feature_advice({"group.version": 1}) == (
        "The cluster has finalized features this broker does not support: group.version=1 (this broker: 0). "
        "Format the controllers with --release-version 4.2 --feature group.version=0 --feature transaction.version=0 "
        "--feature eligible.leader.replicas.version=0 --feature share.version=0 --feature streams.version=0 (an older "
        "Kafka: its own release, without the features it does not know), or downgrade the features with "
        "kafka-features.sh."
    )
    assert "not support: ask with kafka-features.sh describe." in feature_advice({})
