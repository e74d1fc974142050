"""Keys and prefixes that every store takes."""

import pytest

from broker.objectstore.object_keys import check_key, check_prefix


@pytest.mark.parametrize("key", ["a", "wal/MkU3OEVBNTcwNTJENDM2Qg/1/42/00000001.wal", "a" * 255, "a=1/b+c/@d/-e/_f"])
def test_good_keys(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "a/.b", "a b", "a\n", "ö", "a\\b", "a" * 256, "a/" * 512 + "a"],
)
def test_bad_keys(key: str) -> None:
    with pytest.raises(ValueError, match="cannot be the key"):
        check_key(key)


def test_prefixes() -> None:
    assert check_prefix("") == ""
    assert check_prefix("a/b/") == "a/b/"
    for prefix in ("a", "/", "a//", "../"):
        with pytest.raises(ValueError, match=r"key|prefix"):
            check_prefix(prefix)
