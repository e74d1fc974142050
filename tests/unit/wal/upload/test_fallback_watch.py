"""What is told of fallback, however many partitions there are."""

import asyncio

from structlog.testing import capture_logs
from structlog.types import EventDict

from broker.common.identifiers import TopicIdPartition
from broker.common.tasks import BackgroundTasks
from broker.wal.upload.fallback import FallbackEnd, FallbackReason
from broker.wal.upload.fallback_watch import FallbackWatch
from tests.support.builders import topic_uuid
from tests.support.sim_loop import SimLoop, simulate

LATE, BEHIND = FallbackReason.UPLOADS_LATE, FallbackReason.NOT_IN_BUCKET


class Led:
    """A partition whose follower is served until `is_over`."""

    def __init__(self, watch: FallbackWatch, number: int) -> None:
        self.topic_id_partition = TopicIdPartition(topic_uuid("t"), "t", number)
        self.is_over = False
        self.looks = 0
        self._watch = watch

    def began(self, replica_id: int = 2, reason: FallbackReason = LATE) -> None:
        self._watch.began(self, replica_id, reason, 7)

    def ended(self, replica_id: int = 2, reason: FallbackReason = LATE, sent_bytes: int = 10) -> None:
        self._watch.ended(self, FallbackEnd(replica_id, reason, sent_bytes))

    def settle_fallback(self) -> None:
        self.looks += 1
        if self.is_over:
            self.ended()


def told(lines: list[EventDict]) -> list[dict[str, object]]:
    return [dict(line) for line in lines if line["log_level"] != "debug"]


def test_an_outage_is_a_handful_of_lines_for_thousands_of_partitions() -> None:
    async def story(loop: SimLoop) -> None:
        watch = FallbackWatch()
        led = [Led(watch, number) for number in range(2500)]
        async with BackgroundTasks("test") as tasks:
            tasks.start("watch", watch.run())
            with capture_logs() as lines:
                for each in led:
                    each.began()
                await asyncio.sleep(3.5)
                assert [each.looks for each in led] == [3] * 2500
                for each in led:
                    each.is_over = True
                await asyncio.sleep(2)
        about = {"follower": 2, "reason": LATE, "log_level": "warning"}
        assert told(lines) == [
            {"event": "wal_fallback_began", **about, "partition": "t-0", "offset": 7},
            {"event": "wal_fallback_spread", **about, "partitions": 10},
            {"event": "wal_fallback_spread", **about, "partitions": 100},
            {"event": "wal_fallback_spread", **about, "partitions": 1000},
            {"event": "wal_fallback_ended", **about, "log_level": "info", "partitions": 2500, "sent_bytes": 25_000},
        ]
        assert len(lines) == 5 + 2499 + 2500  # each partition, for who wants to know

    simulate(story)


def test_followers_and_reasons_are_told_apart() -> None:
    watch = FallbackWatch()
    one = Led(watch, 0)
    with capture_logs() as lines:
        one.began(2, LATE)
        one.began(3, LATE)
        one.began(3, BEHIND)
        one.ended(3, LATE)
        one.ended(3, BEHIND, 5)
        watch.close()
    assert [(line["event"], line["follower"], line["reason"], line["log_level"]) for line in told(lines)] == [
        ("wal_fallback_began", 2, LATE, "warning"),
        ("wal_fallback_began", 3, LATE, "warning"),
        ("wal_fallback_began", 3, BEHIND, "info"),
        ("wal_fallback_ended", 3, LATE, "info"),
        ("wal_fallback_ended", 3, BEHIND, "info"),
    ]


def test_what_begins_again_at_once_goes_on() -> None:
    async def story(loop: SimLoop) -> None:
        watch = FallbackWatch()
        led = [Led(watch, number) for number in range(5)]
        async with BackgroundTasks("test") as tasks:
            tasks.start("watch", watch.run())
            with capture_logs() as lines:
                for _ in range(3):  # one partition after the other catches up
                    for each in led:
                        each.began()
                        await asyncio.sleep(0.1)
                        each.ended()
                await asyncio.sleep(5)
                led[0].ended()  # it is over
                led[0].began()
        assert [(line["event"], line.get("partitions"), line.get("sent_bytes")) for line in told(lines)] == [
            ("wal_fallback_began", None, None),
            ("wal_fallback_ended", 5, 150),
            ("wal_fallback_began", None, None),
        ]

    simulate(story)
