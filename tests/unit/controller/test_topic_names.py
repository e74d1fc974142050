import pytest

from broker.common.errors import InvalidTopicError
from broker.controller.topic_names import check_topic_name, find_collision, unified_name


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "...", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "is longer than the max allowed length 249"),
        ("a b", "one or more characters other than ASCII alphanumerics"),
        ("ä", "one or more characters other than ASCII alphanumerics"),
        ("a\n", "one or more characters other than ASCII alphanumerics"),
    ],
)
def test_illegal_names(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicError, match="Topic name is invalid: ") as raised:
        check_topic_name(name)
    assert reason in str(raised.value)


def test_dots_and_underscores_collide() -> None:
    assert unified_name("a.b_c") == "a_b_c"
    assert find_collision("t.x", ["other", "t_x"]) == "t_x"
    assert find_collision("t.x", ["t.x", "tx"]) is None
