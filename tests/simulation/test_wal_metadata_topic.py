"""`__remote_wal_log_metadata` on a whole cluster in virtual time (KIP-1176)."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC
from broker.common.metadata_topic import MetadataTopicError
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.server.metadata_topic import topic_fetcher
from broker.server.metadata_topic.metadata_topic_client import MetadataTopicClient
from broker.server.metadata_topic.topic_endpoint import TopicEndPoint
from tests.simulation.metadata_topic_stories import heal, strike, tell, until
from tests.support.sim_cluster import SimCluster
from tests.support.sim_metadata_topic import PARTITIONS, SimMember, metadata_partition

pytestmark = pytest.mark.simulation

SEED: Final = 7
EVERY_PARTITION: Final = range(PARTITIONS)


async def _known(*topics: MetadataTopicClient) -> None:
    await until(lambda: all(topic.partition_count == PARTITIONS for topic in topics))


def _image(cluster: SimCluster) -> MetadataImage:
    assert cluster.image is not None
    return cluster.image


def _first_times(values: Sequence[bytes]) -> list[bytes]:
    """Without what came again."""
    return list(dict.fromkeys(values))


def test_the_topic_is_created_once_whoever_needs_it_with_settings_of_its_own() -> None:
    """Behaviour 3."""

    async def story(cluster: SimCluster) -> None:
        members = [SimMember(cluster, number) for number in cluster.broker_ids]
        async with members[0].running() as one, members[1].running() as two, members[2].running() as three:
            await _known(one, two, three)
            await asyncio.sleep(10)
            image = _image(cluster)
            topic = image.topics.topic(REMOTE_WAL_LOG_METADATA_TOPIC)
            assert topic is not None
            assert {len(each.replicas) for each in topic.partitions.values()} == {3}
            assert dict(image.configs.properties(ConfigResourceType.TOPIC, REMOTE_WAL_LOG_METADATA_TOPIC)) == {
                "cleanup.policy": "delete",
                "retention.ms": "7200000",
                "segment.ms": "600000",
                "segment.bytes": "67108864",
                "min.insync.replicas": "2",
                "max.message.bytes": "4194304",
            }

    tell(story, SEED)


def test_too_few_brokers_are_waited_for() -> None:
    async def story(cluster: SimCluster) -> None:
        cluster.nodes[3].kill()
        await until(lambda: _image(cluster).brokers[3].fenced)
        await asyncio.sleep(1)  # until the brokers have heard of it, too
        async with SimMember(cluster, 1).running() as topic:
            await asyncio.sleep(20)
            assert topic.partition_count is None
            with pytest.raises(MetadataTopicError):
                await topic.append(0, [b"too early"])
            await cluster.start_node(3)
            await _known(topic)

    tell(story, SEED)


def test_what_one_broker_appends_others_read_in_order_and_soon() -> None:
    async def story(cluster: SimCluster) -> None:
        one, other = SimMember(cluster, 1), SimMember(cluster, 2)
        async with one.running() as writer, other.running() as reader:
            await _known(writer, reader)
            reader.assign(EVERY_PARTITION)
            await until(lambda: all(reader.position(each) == 0 for each in EVERY_PARTITION))
            for number in range(30):
                await writer.append(number % 3, [f"{number}".encode(), b"-"])
                took = await until(lambda number=number: len(other.told) == 2 * number + 2)  # type: ignore[misc]
                assert took < 0.05
            for partition in EVERY_PARTITION:
                assert other.values(partition)[::2] == [f"{number}".encode() for number in range(partition, 30, 3)]
                assert (reader.position(partition), await reader.end_offset(partition)) == (20, 20)
            assert reader.lag == 0

    tell(story, SEED)


def test_an_idle_topic_costs_two_fetches_a_second_and_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    fetches: Counter[TopicEndPoint] = Counter()
    fetch = TopicEndPoint.fetch

    async def counted(self: TopicEndPoint, *args: Any, **options: Any) -> Any:
        fetches[self] += 1
        return await fetch(self, *args, **options)

    async def story(cluster: SimCluster) -> None:
        async with SimMember(cluster, 1).running() as topic:
            await _known(topic)
            topic.assign(EVERY_PARTITION)
            await asyncio.sleep(5)
            monkeypatch.setattr(TopicEndPoint, "fetch", counted)
            await asyncio.sleep(30)
            leaders = {cluster.leader_of(metadata_partition(each)) for each in EVERY_PARTITION}
            assert len(fetches) == len(leaders)
            assert all(55 <= count <= 61 for count in fetches.values()), fetches

    tell(story, SEED)


def test_a_new_assignment_does_not_wait_for_a_parked_fetch() -> None:
    async def story(cluster: SimCluster) -> None:
        async with SimMember(cluster, 1).running() as topic:
            await _known(topic)
            for first, second in ((0, 1), (1, 2), (0, 2)):
                topic.assign([])
                topic.assign([first])
                await until(lambda first=first: topic.position(first) is not None)  # type: ignore[misc]
                await asyncio.sleep(0.2)
                topic.assign([first, second])
                took = await until(lambda second=second: topic.position(second) is not None)  # type: ignore[misc]
                assert took < 0.05

    tell(story, SEED)


class _Publishing:
    """Numbers, one after the other per partition, several at a time; whatever is not acknowledged is sent again."""

    def __init__(self, topic: MetadataTopicClient) -> None:
        self.is_over = False
        self.acknowledged: dict[int, list[bytes]] = {each: [] for each in EVERY_PARTITION}
        self.longest_wait = 0.0
        self._topic = topic

    async def run(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        number = 0
        while not self.is_over:
            values = [f"{partition}/{number + step}".encode() for step in range(4)]
            began = loop.time()
            answers = [self._topic.append(partition, [value]) for value in values]
            await asyncio.wait(answers)
            self.longest_wait = max(self.longest_wait, loop.time() - began)
            assert [answer.exception() for answer in answers] == [None] * 4
            self.acknowledged[partition] += values
            number += 4
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", ["kill", "crash", "stop", "cut"])
def test_nothing_is_lost_and_the_order_is_kept_when_a_leader_changes(fault: str) -> None:
    """Behaviour 55."""

    async def story(cluster: SimCluster) -> None:
        victim = 3
        writing, reading = 1, 2
        one, other = SimMember(cluster, writing), SimMember(cluster, reading)
        async with one.running() as writer, other.running() as reader:
            await _known(writer, reader)
            led = [each for each in EVERY_PARTITION if cluster.leader_of(metadata_partition(each)) == victim]
            assert led, "the victim leads a partition"
            reader.assign(EVERY_PARTITION)
            publishing = _Publishing(writer)
            async with asyncio.TaskGroup() as tasks:
                for partition in EVERY_PARTITION:
                    tasks.create_task(publishing.run(partition))
                await asyncio.sleep(1)
                before = {each: len(publishing.acknowledged[each]) for each in led}
                await strike(cluster, fault, victim, "member")
                await until(lambda: all(cluster.leader_of(metadata_partition(each)) != victim for each in led))
                assert all(before.values())
                await asyncio.sleep(8)  # until who is missing has left the ISR
                assert all(len(publishing.acknowledged[each]) > before[each] + 40 for each in led)
                await heal(cluster, fault, victim)
                await asyncio.sleep(4)
                publishing.is_over = True
            await until(lambda: reader.lag == 0)
            for partition in EVERY_PARTITION:
                assert _first_times(other.values(partition)) == publishing.acknowledged[partition]

    tell(story, SEED)


def test_a_restart_goes_on_where_it_was_and_without_a_position_by_timestamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviour 54, as far as the metadata is concerned."""
    monkeypatch.setattr(topic_fetcher, "HISTORY_RECORDS_MAX", 50)

    async def story(cluster: SimCluster) -> None:
        retention = {"rwlmm.config.remote.wal.log.metadata.topic.retention.ms": "100000"}
        writing, member = SimMember(cluster, 1), SimMember(cluster, 2, retention)
        fresh = SimMember(cluster, 3, retention)
        async with writing.running() as writer:
            async with member.running() as reader:
                await _known(writer, reader)
                reader.assign(EVERY_PARTITION)
                for number in range(150):
                    for partition in EVERY_PARTITION:
                        await writer.append(partition, [f"{number}".encode()])
                    await asyncio.sleep(1)
            member.told.clear()
            async with member.running() as reader, fresh.running() as first_time:
                reader.assign(EVERY_PARTITION)
                first_time.assign(EVERY_PARTITION)
                await until(lambda: all(fresh.values(each)[-1:] == [b"149"] for each in EVERY_PARTITION))
                await until(lambda: all(member.values(each)[-1:] == [b"149"] for each in EVERY_PARTITION))
        for partition in EVERY_PARTITION:
            assert 45 <= int(fresh.values(partition)[0]) <= 55  # a hundred seconds ago
            first = int(member.values(partition)[0])
            if partition == combined_event_partition_of(2, PARTITIONS):
                assert 45 <= first <= 55  # of its own objects, whatever it knew
            else:
                assert 75 <= first <= 95  # a minute before it stopped, as this member has it
            assert member.values(partition) == [f"{number}".encode() for number in range(first, 150)]

    tell(story, SEED)


def test_what_is_new_is_heard_of_while_hours_of_history_are_read() -> None:
    async def story(cluster: SimCluster) -> None:
        one, other = SimMember(cluster, 1), SimMember(cluster, 2)
        async with one.running() as writer, other.running() as reader:
            await _known(writer, reader)
            past = [f"{number}".encode().ljust(20_000) for number in range(300)]
            for partition in EVERY_PARTITION:
                for value in past:
                    await writer.append(partition, [value])
            reader.assign(EVERY_PARTITION)
            for number in range(3):
                await asyncio.sleep(0.5)
                await _heard_soon(writer, other, f"new {number}".encode())
            assert reader.lag > 100
            await until(lambda: reader.lag == 0 and all(reader.has_caught_up(each) for each in EVERY_PARTITION))
            for partition in EVERY_PARTITION:
                assert [each for each in other.values(partition) if len(each) == 20_000] == past
                reader.read_again(partition)
            other.told.clear()
            for number in range(3, 6):
                await asyncio.sleep(0.5)
                await _heard_soon(writer, other, f"new {number}".encode())
            assert not any(reader.has_caught_up(each) for each in EVERY_PARTITION)
            await until(lambda: all(reader.has_caught_up(each) for each in EVERY_PARTITION))
            for partition in EVERY_PARTITION:
                news = [f"new {number}".encode() for number in range(6)]
                assert sorted(other.values(partition)) == sorted([*past, *news])
                assert reader.position(partition) == len(past) + len(news)

    async def _heard_soon(writer: MetadataTopicClient, reader: SimMember, value: bytes) -> None:
        for partition in EVERY_PARTITION:
            await writer.append(partition, [value])
        took = await until(lambda: all(value in reader.values(partition) for partition in EVERY_PARTITION))
        assert took < 0.1

    tell(story, SEED)
