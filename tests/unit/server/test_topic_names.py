import pytest

from broker.server.topic_names import invalid_topic_name_reason, is_valid_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
def test_good_names(name: str) -> None:
    assert is_valid_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty string"),
        (".", "'.' or '..'"),
        ("..", "'.' or '..'"),
        ("x" * 250, "max allowed length 249"),
        ("a b", "other than ASCII alphanumerics"),
        ("é", "other than ASCII alphanumerics"),
        ("a\n", "other than ASCII alphanumerics"),
    ],
)
def test_bad_names(name: str, reason: str) -> None:
    assert reason in str(invalid_topic_name_reason(name))
    assert not is_valid_topic_name(name)
