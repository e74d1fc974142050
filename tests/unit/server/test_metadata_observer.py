import asyncio
from dataclasses import replace
from typing import Any

import pytest
import structlog
import structlog.testing

from broker.common.errors import ErrorCode
from broker.common.identifiers import METADATA_TOPIC_ID
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import to_milliseconds
from broker.schemas import cluster_metadata as records
from broker.server.controller_finder import (
    ControllerFinder,
    ControllerNode,
    Endpoint,
    InconsistentLeaderError,
    NodeIdTakenError,
)
from broker.server.metadata_observer import ClusterIdMismatchError, MetadataObserver
from broker.server.metadata_publisher import MetadataPublisher, PublishingStage
from broker.server.metadata_tail import MetadataDivergedError
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import CLUSTER_ID, CONTROLLER, DIRECTORIES, IDENTITY, FakeController
from tests.unit.server.metadata_log_support import (
    batch,
    control_batch,
    fetch_answer,
    script,
    snapshot_answer,
    topic,
)

OTHER = Endpoint("other", 9190)
LEVEL = records.FeatureLevelRecord(name="metadata.version", feature_level=25)
HERE = {1: CONTROLLER}


class Setup:
    def __init__(self, *bootstrap: Endpoint, **times: int) -> None:
        self.controller = FakeController()
        self.cache = MetadataCache()
        self.publisher = MetadataPublisher(self.cache)
        self.published: list[tuple[int, list[str], list[str]]] = []
        self.publisher.subscribe(PublishingStage.REPLICAS, "test", self._hear)
        self.finder = ControllerFinder(bootstrap or [CONTROLLER])
        self.observer = MetadataObserver(
            finder=self.finder, connect=self.controller.connect, publisher=self.publisher, identity=IDENTITY, **times
        )

    def _hear(self, delta: Any, image: Any) -> None:
        created = sorted(each.name for each in delta.topics_delta.changed_topics.values())
        self.published.append((image.offset, created, sorted(delta.topics_delta.deleted_topics.values())))

    async def fetch(self, *answers: Any) -> list[bool]:
        script(self.controller, answers)
        return [await self.observer.fetch_once() for _ in answers]

    @property
    def topics(self) -> list[str]:
        return sorted(self.cache.image.topics.by_name)


def test_the_leader_is_found_by_asking_and_the_log_followed() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        unknown = fetch_answer(
            error=ErrorCode.fenced_leader_epoch, leader=(3, 7), endpoints={3: OTHER}, high_watermark=-1
        )
        data = control_batch(0, epoch=7) + batch(1, LEVEL, topic(1), epoch=7)
        await setup.fetch(unknown, fetch_answer(leader=(3, 7), data=data, high_watermark=3))
        assert setup.finder.leader == ControllerNode(3, OTHER)
        (asked_first, first), (asked_second, second) = setup.controller.asked
        assert (asked_first, asked_second) == (CONTROLLER, OTHER)
        assert first.topics[0].topic_id == METADATA_TOPIC_ID
        partition = first.topics[0].partitions[0]
        assert (partition.current_leader_epoch, partition.fetch_offset, partition.last_fetched_epoch) == (0, 0, 0)
        assert partition.replica_directory_id == DIRECTORIES[1]
        assert (partition.high_watermark, first.cluster_id, first.replica_state.replica_id) == (-1, CLUSTER_ID, 1)
        assert (to_milliseconds(first.max_wait), first.session_epoch) == (500, -1)
        assert second.topics[0].partitions[0].current_leader_epoch == 7
        assert setup.published == [(2, ["t1"], [])]
        assert setup.observer.applied_offset == 2
        await setup.fetch(fetch_answer(leader=(3, 7)))
        partition = setup.controller.asked[-1][1].topics[0].partitions[0]
        assert (partition.fetch_offset, partition.last_fetched_epoch, partition.high_watermark) == (3, 7, 3)

    simulate(story)


def test_nothing_above_the_high_watermark_is_applied() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        data = batch(0, LEVEL) + batch(1, topic(1)) + batch(2, topic(2))
        await setup.fetch(fetch_answer(data=data, high_watermark=-1, endpoints=HERE))
        assert setup.published == []
        await setup.fetch(fetch_answer(high_watermark=2))
        assert (setup.published, setup.topics) == ([(1, ["t1"], [])], ["t1"])
        await setup.fetch(fetch_answer(high_watermark=3))
        assert (setup.published[1:], setup.topics) == ([(2, ["t2"], [])], ["t1", "t2"])

    simulate(story)


def test_the_first_publication_waits_until_nothing_is_missing() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        await setup.fetch(fetch_answer(data=batch(0, LEVEL, topic(1)), high_watermark=4, endpoints=HERE))
        assert (setup.published, setup.observer.lag) == ([], 2)
        await setup.fetch(fetch_answer(data=batch(2, topic(2), topic(3)), high_watermark=4))
        assert (setup.published, setup.observer.lag) == ([(3, ["t1", "t2", "t3"], [])], 0)

    simulate(story)


def test_control_records_alone_are_not_a_cluster() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        await setup.fetch(fetch_answer(data=control_batch(0), high_watermark=1, endpoints=HERE))
        assert setup.published == []
        assert not setup.observer.is_caught_up
        assert setup.observer.applied_offset == -1

    simulate(story)


def test_a_tail_the_new_leader_does_not_have_never_becomes_visible() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        first = fetch_answer(data=batch(0, LEVEL) + batch(1, topic(1)), high_watermark=1, endpoints=HERE)
        await setup.fetch(first, fetch_answer(leader=(2, 2), diverging=(1, 1), endpoints={2: OTHER}))
        new = batch(1, topic(5), epoch=2)
        await setup.fetch(fetch_answer(leader=(2, 2), data=new, high_watermark=2))
        assert setup.topics == ["t5"]
        partition = setup.controller.asked[-1][1].topics[0].partitions[0]
        assert (partition.fetch_offset, partition.last_fetched_epoch) == (1, 1)

    simulate(story)


def test_transactions_are_seen_whole_or_not_at_all() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        begin, end = records.BeginTransactionRecord(name="x"), records.EndTransactionRecord()
        abort = records.AbortTransactionRecord(reason="no")
        await setup.fetch(fetch_answer(data=batch(0, LEVEL), high_watermark=1, endpoints=HERE))
        await setup.fetch(fetch_answer(data=batch(1, begin, topic(1)), high_watermark=3))
        assert (setup.topics, setup.observer.applied_offset) == ([], 0)
        await setup.fetch(fetch_answer(data=batch(3, topic(2), end), high_watermark=5))
        assert (setup.topics, setup.observer.applied_offset) == (["t1", "t2"], 4)
        await setup.fetch(fetch_answer(data=batch(5, begin, topic(3)) + batch(7, abort), high_watermark=8))
        assert (setup.topics, setup.observer.applied_offset) == (["t1", "t2"], 7)

    simulate(story)


def test_a_snapshot_in_odd_pieces_replaces_the_image() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        await setup.fetch(fetch_answer(data=batch(0, LEVEL, topic(1), topic(2)), high_watermark=3, endpoints=HERE))
        content = control_batch(0) + batch(1, LEVEL, topic(2), topic(7)) + control_batch(4)

        def serve(request: Any) -> Any:
            asked = request.topics[0].partitions[0]
            assert (asked.snapshot_id.end_offset, asked.snapshot_id.epoch) == (50, 4)
            return snapshot_answer(content[asked.position : asked.position + 37], asked.position, len(content))

        setup.controller.answers[ApiKey.FETCH_SNAPSHOT] = serve
        await setup.fetch(fetch_answer(snapshot=(50, 4)))
        assert setup.published[-1] == (49, ["t7"], ["t1"])
        assert len(setup.controller.requests(ApiKey.FETCH_SNAPSHOT)) == -(-len(content) // 37)
        await setup.fetch(fetch_answer(data=batch(50, topic(8), epoch=4), high_watermark=51))
        assert setup.topics == ["t2", "t7", "t8"]
        partition = setup.controller.requests(ApiKey.FETCH)[-1].topics[0].partitions[0]
        assert (partition.fetch_offset, partition.last_fetched_epoch) == (50, 4)

    simulate(story)


@pytest.mark.parametrize(
    "trouble",
    [
        snapshot_answer(b"", 0, 0, ErrorCode.snapshot_not_found),
        snapshot_answer(b"", 0, 9),
        ConnectionResetError("x"),
        # What Apache Kafka's controllers say when the error has no place in the answer they would give.
        replace(snapshot_answer(b"", 0), error_code=ErrorCode.unknown_server_error, topics=()),
    ],
)
def test_a_snapshot_that_cannot_be_read_changes_nothing(trouble: Any) -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        await setup.fetch(fetch_answer(data=batch(0, LEVEL, topic(1)), high_watermark=2, endpoints=HERE))
        setup.controller.answers[ApiKey.FETCH_SNAPSHOT] = lambda _: trouble
        assert await setup.fetch(fetch_answer(snapshot=(50, 4))) == [False]
        assert (setup.topics, setup.published) == (["t1"], [(1, ["t1"], [])])

    simulate(story)


def test_an_unknown_record_stops_the_following_loudly() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        unknown = b"\x01\x7f\x00\x00"
        data = batch(0, LEVEL, topic(1)) + batch(2, unknown) + batch(3, topic(3))
        script(setup.controller, [fetch_answer(data=data, high_watermark=4, endpoints=HERE)] * 9)
        async with setup.observer.running() as observer:
            await asyncio.sleep(5)
            assert observer.fault is not None and "api key 127" in str(observer.fault)
            assert observer.load_error_count == 1
        assert len(setup.controller.asked) == 1
        assert "t3" not in setup.topics

    simulate(story)


def test_another_cluster_ends_the_broker_with_both_names() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        with pytest.raises(ClusterIdMismatchError, match=f"another cluster than {CLUSTER_ID}"):
            await setup.fetch(fetch_answer(top_error=ErrorCode.inconsistent_cluster_id))

    simulate(story)


def test_a_quorum_that_cannot_be_followed_is_told_to_the_loop() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        script(setup.controller, [fetch_answer(top_error=ErrorCode.inconsistent_cluster_id)])
        async with setup.observer.running() as observer:
            await asyncio.sleep(1)
        (failure,) = loop.failures
        assert isinstance(failure["exception"], ClusterIdMismatchError)
        assert observer.fault is failure["exception"]
        loop.failures.clear()

    simulate(story)


def test_a_leader_that_lacks_what_was_committed_ends_the_broker() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        committed = fetch_answer(data=batch(0, LEVEL, topic(1)) + batch(2, topic(2)), high_watermark=3, endpoints=HERE)
        script(setup.controller, [committed, fetch_answer(leader=(1, 2), diverging=(1, 2), endpoints=HERE)])
        async with setup.observer.running() as observer:
            await asyncio.sleep(1)
        (failure,) = loop.failures
        assert isinstance(failure["exception"], MetadataDivergedError)
        assert "ends at 2 in epoch 1, but records up to 3 were committed" in str(observer.fault)
        assert setup.topics == ["t1", "t2"]
        loop.failures.clear()

    simulate(story)


def test_a_controller_with_our_id_ends_the_broker() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        setup.finder = setup.observer._finder = ControllerFinder([CONTROLLER], broker_id=1)
        script(setup.controller, [fetch_answer(error=ErrorCode.fenced_leader_epoch, endpoints=HERE)])
        async with setup.observer.running() as observer:
            await asyncio.sleep(1)
        (failure,) = loop.failures
        assert isinstance(failure["exception"], NodeIdTakenError)
        assert observer.fault is failure["exception"]
        loop.failures.clear()

    simulate(story)


def test_a_refusal_is_said_once() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        refused = fetch_answer(error=ErrorCode.unknown_server_error, endpoints=HERE)
        good = fetch_answer(data=batch(0, LEVEL), high_watermark=1, endpoints=HERE)
        await setup.fetch(refused, refused, fetch_answer(top_error=ErrorCode.invalid_request), good, refused)

    with structlog.testing.capture_logs() as lines:
        simulate(story)
    said = [line["error"] for line in lines if line["event"] == "metadata_fetch_refused"]
    assert said == ["unknown_server_error", "invalid_request", "unknown_server_error"]


def test_two_leaders_in_one_epoch_end_it() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        with pytest.raises(InconsistentLeaderError):
            await setup.fetch(
                fetch_answer(leader=(1, 4), endpoints=HERE), fetch_answer(leader=(2, 4), endpoints={2: OTHER})
            )

    simulate(story)


def test_a_dead_leader_is_looked_for_at_the_bootstrap_servers() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(CONTROLLER, OTHER)
        data = batch(0, LEVEL, topic(1))

        def serve(request: Any) -> Any:
            at = setup.controller.asked[-1][0]
            if at == CONTROLLER:
                return fetch_answer(leader=(1, 1), data=data, high_watermark=2, endpoints=HERE)
            return fetch_answer(leader=(2, 2), high_watermark=2, endpoints={2: OTHER})

        setup.controller.answers[ApiKey.FETCH] = serve
        async with setup.observer.running():
            await asyncio.sleep(1)
            assert setup.finder.leader == ControllerNode(1, CONTROLLER)
            setup.controller.unreachable.add(CONTROLLER)
            await asyncio.sleep(1)
            assert setup.finder.leader == ControllerNode(2, OTHER)
        assert setup.topics == ["t1"]

    simulate(story)


def test_an_idle_leader_is_not_asked_in_a_tight_loop() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        setup.controller.answers[ApiKey.FETCH] = lambda _: fetch_answer(high_watermark=0, endpoints=HERE)
        async with setup.observer.running():
            await asyncio.sleep(1)
        assert 40 <= len(setup.controller.asked) <= 55  # one per 20 ms although the answers come at once

    simulate(story)


def test_a_leader_that_holds_the_fetch_is_asked_again_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()

        async def hold(request: Any) -> Any:
            await asyncio.sleep(to_milliseconds(request.max_wait) / 1000)
            return fetch_answer(high_watermark=0, endpoints=HERE)

        setup.controller.answers[ApiKey.FETCH] = hold
        async with setup.observer.running():
            await asyncio.sleep(10.1)
        assert len(setup.controller.asked) == 21

    simulate(story)


def test_a_controller_without_a_fetch_version_of_ours_is_passed_by() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        setup.controller.offered[ApiKey.FETCH] = (0, 12)
        assert not await setup.observer.fetch_once()
        assert setup.controller.asked == []

    simulate(story)


@pytest.mark.parametrize("version", range(13, 18))
def test_older_controllers_are_followed_too(version: int) -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        setup.controller.offered[ApiKey.FETCH] = (0, version)
        setup.finder = setup.observer._finder = ControllerFinder([], HERE)
        await setup.fetch(fetch_answer(data=batch(0, LEVEL, topic(1)), high_watermark=2))
        assert setup.topics == ["t1"]
        assert setup.controller.asked[0][1].__version__ == version

    simulate(story)


def test_the_times_of_the_quorum_are_settings() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(fetch_timeout_ms=100, retry_backoff_ms=400)

        async def be_silent(_: Any) -> None:
            await asyncio.sleep(3600)

        setup.controller.answers[ApiKey.FETCH] = be_silent
        async with setup.observer.running():
            await asyncio.sleep(10.5)
        assert len(setup.controller.asked) == 11  # each waits 500 ms in the leader's hands, 100 in silence, 400 after

    simulate(story)


def test_a_piece_of_a_snapshot_has_the_time_of_a_request() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(request_timeout_ms=300)

        async def be_silent(_: Any) -> None:
            await asyncio.sleep(3600)

        setup.controller.answers[ApiKey.FETCH] = lambda _: fetch_answer(snapshot=(10, 1), endpoints=HERE)
        setup.controller.answers[ApiKey.FETCH_SNAPSHOT] = be_silent
        assert not await setup.observer.fetch_once()
        assert loop.time() == pytest.approx(0.3)

    simulate(story)
