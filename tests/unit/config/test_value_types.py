from pathlib import Path

import pytest

from broker.config.value_types import (
    BOOLEAN,
    DOUBLE,
    HOST_PORT,
    HOST_PORTS,
    INT,
    LIST,
    LISTENERS,
    LONG,
    MAP,
    PATH,
    ROLES,
    SHORT,
    VOTERS,
    HostPort,
    Listener,
    Voter,
)


@pytest.mark.parametrize("text", ["", "1.0", "0x10", "1_000", "ten", "٣", "2147483648", "-2147483649"])
def test_what_java_does_not_read_as_an_int_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a whole number|does not fit 32 bits"):
        INT.parse(text)


def test_numbers_reach_to_their_bounds() -> None:
    assert INT.parse("-2147483648") == -(1 << 31)
    assert LONG.parse("9223372036854775807") == (1 << 63) - 1
    assert SHORT.parse("+32767") == 32767
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        LONG.parse("9223372036854775808")


def test_doubles_are_written_as_java_writes_them() -> None:
    assert DOUBLE.parse("0.5") == 0.5
    assert DOUBLE.format(0.5) == "0.5"
    assert DOUBLE.format(1.7976931348623157e308) == "1.7976931348623157E308"
    assert DOUBLE.format(1e-7) == "1E-7"
    for text in ("half", "NaN"):
        with pytest.raises(ValueError, match="not a number"):
            DOUBLE.parse(text)


def test_booleans_are_true_or_false_in_any_case() -> None:
    assert (BOOLEAN.parse("True"), BOOLEAN.parse("false"), BOOLEAN.format(True)) == (True, False, "true")
    with pytest.raises(ValueError, match="expected true or false"):
        BOOLEAN.parse("yes")


def test_lists_are_split_at_commas_and_trimmed() -> None:
    assert LIST.parse(" a , b,c ") == ("a", "b", "c")
    assert LIST.parse("") == ()
    assert LIST.format(("a", "b")) == "a,b"


def test_listeners_have_names_hosts_and_ports() -> None:
    assert LISTENERS.parse("plaintext://:9092, SSL://[::1]:9093") == (
        Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),
        Listener("SSL", "::1", 9093, "SSL"),
    )
    assert LISTENERS.format(LISTENERS.parse("A://[::1]:1,B://h:2")) == "A://[::1]:1,B://h:2"
    with pytest.raises(ValueError, match="'70000' is not a port"):
        LISTENERS.parse("A://h:70000")


def test_addresses_and_voters() -> None:
    assert HOST_PORT.parse("[::1]:80") == HostPort("::1", 80)
    assert HOST_PORTS.parse("a:1,b:2") == (HostPort("a", 1), HostPort("b", 2))
    assert VOTERS.parse("1@a:1,2@b:2") == (Voter(1, "a", 1), Voter(2, "b", 2))
    assert VOTERS.format(VOTERS.parse("1@a:1")) == "1@a:1"
    with pytest.raises(ValueError, match="'a:1' is not of the form id@host:port"):
        VOTERS.parse("a:1")


def test_maps_split_at_the_last_colon() -> None:
    assert MAP.parse("::1:5,10.0.0.1:6") == {"::1": "5", "10.0.0.1": "6"}
    assert MAP.format({"a": "1", "b": "2"}) == "a:1,b:2"
    with pytest.raises(ValueError, match="'a' is not of the form key:value"):
        MAP.parse("a")


def test_paths_and_roles() -> None:
    assert PATH.parse("/data/a") == Path("/data/a")
    assert ROLES.format(frozenset({"controller", "broker"})) == "broker,controller"
