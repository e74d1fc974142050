from uuid import UUID

import pytest

from broker.wal.objects.object_key import WalObjectKey, broker_prefix, cluster_prefix

COMBINED_ID = UUID(bytes=bytes(range(0x20, 0x30)))
KEY = WalObjectKey.at(
    1_700_000_000_000,  # 2023-11-14 22:13:20 UTC
    cluster_id="5L6g3nShT-eMCtK--X86sw",
    broker_id=1,
    broker_epoch=77,
    sequence=0xABC,
    combined_id=COMBINED_ID,
)
TEXT = "wal/5L6g3nShT-eMCtK--X86sw/1/77/2023111422/0000000000000abc-ICEiIyQlJicoKSorLC0uLw.wal"


def test_a_key_names_broker_epoch_hour_and_object() -> None:
    assert str(KEY) == TEXT
    assert WalObjectKey.parse(TEXT) == KEY


def test_an_id_may_begin_with_the_separator() -> None:
    key = KEY._replace(combined_segment_id=UUID(bytes=b"\xfb" + bytes(15)))
    assert "-" in str(key).rsplit("abc-", 1)[1][:1]
    assert WalObjectKey.parse(str(key)) == key


def test_every_key_of_a_broker_begins_with_its_prefix() -> None:
    assert str(KEY).startswith(broker_prefix(KEY.cluster_id, 1))
    assert not str(KEY._replace(broker_id=11)).startswith(broker_prefix(KEY.cluster_id, 1))
    assert broker_prefix("c", 1) == "wal/c/1/"
    assert cluster_prefix("c") == "wal/c/"


def test_keys_of_a_broker_epoch_sort_in_the_order_of_their_making() -> None:
    later = KEY._replace(sequence=0x1000)
    assert str(KEY) < str(later)


@pytest.mark.parametrize(
    "key",
    [
        "",
        TEXT.replace("wal/", "tiered/", 1),
        TEXT.removesuffix(".wal"),
        TEXT.replace("/77/", "/x/"),
        TEXT.replace("/77/", "/077/"),
        TEXT.replace("2023111422", "202311142"),
        TEXT.replace("2023111422", "20231114ab"),
        TEXT.replace("abc-", "ABC-"),
        TEXT.replace("0abc-", "abc-"),
        TEXT.replace("ICEi", "ICE!"),
        TEXT.replace("uLw.wal", ".wal"),
        TEXT.replace("/77/", "/77/extra/"),
    ],
)
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not the key of a WAL object"):
        WalObjectKey.parse(key)
