import pytest

from broker.config.properties import (
    format_properties,
    from_environment,
    parse_overrides,
    parse_properties,
    variable_name,
)
from broker.config.setting import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a\t=\t1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a = : 1", {"a": ": 1"}),
        ("#a=1\n!b=2\n\n  # c=3\nd=4", {"d": "4"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x,\\\n    y,\\\n\tz\nb=1", {"a": "x,y,z", "b": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a=x\\\n# no comment here", {"a": "x# no comment here"}),
        ("a=x\\", {"a": "x"}),
        ("\\\n\n#c\na", {"a": ""}),
        ("\\\n!c\na", {"a": ""}),
        (r"a\ b\:c\=d = e", {"a b:c=d": "e"}),
        (r"a=\t\n\r\f\\\q", {"a": "\t\n\r\f\\q"}),
        (r"a=\u00e4\uD83D\uDE00", {"a": "ä😀"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        (r"listeners=PLAINTEXT\://\:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_java_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_an_escape_without_four_digits_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\\u12: expected four hexadecimal digits\."):
        parse_properties(r"a=\u12")


def test_what_is_written_is_read_back_equal() -> None:
    properties = {"a b:c=d#!": " x=y:z ", "path": "C:\\dir", "text": "tab\tline\nä😀"}
    text = format_properties(properties, comments=["", "made by hand"])
    assert text.startswith("#\n#made by hand\na\\ b\\:c\\=d\\#\\!=\\ x\\=y\\:z \n")
    assert text.isascii()
    assert parse_properties(text) == properties


def test_environment_variables_name_settings() -> None:
    environment = {
        "WHERRY_LOG_SEGMENT_BYTES": "5",
        "WHERRY_NO_SUCH_THING": "1",
        "LOG_SEGMENT_BYTES": "7",
        "PATH": "/bin",
    }
    assert from_environment(environment, ["log.segment.bytes", "node.id"]) == {
        "log.segment.bytes": "5",
        "no.such.thing": "1",
    }
    assert variable_name("log.segment.bytes") == "WHERRY_LOG_SEGMENT_BYTES"


def test_overrides_are_name_and_value() -> None:
    assert parse_overrides(["a=1", "b = x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(ConfigError, match="expected name=value"):
            parse_overrides([wrong])
