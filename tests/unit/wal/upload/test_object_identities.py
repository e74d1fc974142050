"""Names of objects."""

from broker.common.chance import Chance
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.upload.object_identities import ObjectIdentities
from tests.support.builders import NOW_MS, SettableClock


def test_each_object_has_a_key_of_its_own_under_the_epoch_of_now() -> None:
    epoch = 7
    identities = ObjectIdentities(
        cluster_id="c",
        broker_id=3,
        broker_epoch=lambda: epoch,
        bucket="file:///zone-a",
        clock=SettableClock(),
        chance=Chance(1),
    )
    first = identities.make(oldest_wait_ms=25)
    assert (first.broker_id, first.broker_epoch, first.bucket) == (3, 7, "file:///zone-a")
    assert (first.event_timestamp_ms, first.oldest_append_ms) == (NOW_MS, NOW_MS - 25)
    epoch = 9
    second = identities.make(oldest_wait_ms=0)
    keys = [WalObjectKey.parse(each.object_key) for each in (first, second)]
    assert [(key.broker_epoch, key.sequence, key.hour) for key in keys] == [(7, 1, "2023111422"), (9, 2, "2023111422")]
    assert [key.combined_segment_id for key in keys] == [first.combined_segment_id, second.combined_segment_id]
    assert first.combined_segment_id != second.combined_segment_id
