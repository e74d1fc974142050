import inspect

from broker.common import errors
from broker.common.errors import ErrorCode, InvalidConfigError, KafkaError, StorageFailure


def classes() -> list[type[KafkaError]]:
    return [entry for entry in vars(errors).values() if inspect.isclass(entry) and issubclass(entry, KafkaError)]


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [entry.code for entry in classes()]
    assert len(set(codes)) == len(codes)
    assert ErrorCode.none not in codes


def test_names_follow_the_codes() -> None:
    for entry in classes():
        if entry not in (KafkaError, StorageFailure):
            expected = entry.code.name.removesuffix("_exception").replace("_", "")
            assert entry.__name__.removesuffix("Error").lower() == expected.removesuffix("error"), entry


def test_the_message_is_the_first_argument_or_none() -> None:
    assert InvalidConfigError("retention.ms: no").message == "retention.ms: no"
    assert InvalidConfigError().message is None
    assert StorageFailure("full").code is ErrorCode.kafka_storage_error
