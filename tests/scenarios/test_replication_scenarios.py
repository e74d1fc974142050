"""Stories about one leader, its followers and its clients, told in tests/scenarios/replication/*.txt."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.replication.delayed_delete_records import DeleteRecordsResult
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.offset_lookup import ListedOffset, OffsetQuery
from broker.replication.partition_state import PendingExpandIsr, PendingRecovery, PendingShrinkIsr
from broker.replication.produce_result import PartitionProduceResult
from tests.support import datadriven
from tests.support.builders import ReplicaWorld, ToldAppend, batch, settle, values_of
from tests.support.sim_loop import SimLoop

SCENARIOS = sorted((Path(__file__).parent / "replication").glob("*.txt"))
T = TopicPartition("t", 0)


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


class Story:
    """Broker 1 with the partition t-0; requests that are parked report in the command that completes them."""

    def __init__(self, directory: Path, loop: SimLoop) -> None:
        self.loop = loop
        self.world = ReplicaWorld(directory)
        self.world.register_brokers(1, 2, 3, 4)
        self.events: list[str] = []
        self.requests = 0
        self.appended = 0

    def handle(self, verb: str, arguments: dict[str, str]) -> str:
        method: Callable[[dict[str, str]], Coroutine[Any, Any, str | None]] = getattr(self, verb.replace("-", "_"))
        line = self.loop.run_until_complete(self._run(method(arguments)))
        self.loop.raise_failures()
        events, self.events = self.events, []
        return "\n".join([*([line] if line else []), *events])

    async def _run(self, work: Coroutine[Any, Any, str | None]) -> str | None:
        line = await work
        await settle()
        return line if line is not None else self._state()

    def _state(self) -> str:
        partition = self.world.replicas.hosted_partition(T)
        if partition is None:
            return "not hosted"
        if partition.is_offline:
            return "offline"
        pending = ""
        if isinstance(partition.state, PendingExpandIsr):
            pending = f" pending=expand({partition.state.new_in_sync_replica_id})"
        elif isinstance(partition.state, PendingShrinkIsr):
            pending = f" pending=shrink({','.join(map(str, partition.state.out_of_sync_replica_ids))})"
        elif isinstance(partition.state, PendingRecovery):
            pending = " pending=recovery"
        log = partition.log
        if not partition.is_leader:
            return f"follower of {partition.leader_id} epoch={partition.leader_epoch} end={log.log_end_offset}"
        return (
            f"isr={list(partition.isr)}{pending} high_watermark={log.high_watermark} end={log.log_end_offset}"
            f" start={log.log_start_offset}"
        )

    # The cluster

    async def topic(self, a: dict[str, str]) -> None:
        configs = {"min.insync.replicas": a.get("min-isr", "1")}
        if "cleanup" in a:
            configs["cleanup.policy"] = a["cleanup"]
        replicas = ids(a["replicas"])
        self.world.create_topic(
            replicas=replicas,
            isr=ids(a["isr"]) if "isr" in a else replicas,
            leader=int(a.get("leader", "1")),
            leader_epoch=int(a.get("epoch", "0")),
            configs=configs,
        )

    async def metadata(self, a: dict[str, str]) -> None:
        changes: dict[str, Any] = {}
        for key in ("isr", "replicas"):
            if key in a:
                changes[key] = ids(a[key])
        for key in ("leader", "leader_epoch", "partition_epoch", "leader_recovery_state"):
            if key.replace("_", "-") in a:
                changes[key] = int(a[key.replace("_", "-")])
        self.world.place(**changes)

    async def delete_topic(self, a: dict[str, str]) -> None:
        self.world.delete_topic()

    async def broker(self, a: dict[str, str]) -> None:
        self.world.register_brokers(
            int(a["0"]), fenced="fenced" in a.values(), epoch=int(a["epoch"]) if "epoch" in a else None
        )

    async def disk_fails(self, a: dict[str, str]) -> None:
        self.world.partition().stop(ErrorCode.kafka_storage_error, is_deleted=False)

    async def roll(self, a: dict[str, str]) -> None:
        """The active segment of the log is closed."""
        self.world.partition().log.roll()

    async def tick(self, a: dict[str, str]) -> None:
        """Time passes, for lag and for what is parked."""
        milliseconds = int(a["0"])
        self.world.now_ms += milliseconds
        await asyncio.sleep(milliseconds / 1000)

    async def check_isr(self, a: dict[str, str]) -> None:
        self.world.replicas.maybe_shrink_isrs()

    async def alter_partition_response(self, a: dict[str, str]) -> None:
        if "error" in a:
            self.world.alter_partition.answer(ErrorCode(int(a["error"])))
        else:
            self.world.alter_partition.agree()

    async def proposals(self, a: dict[str, str]) -> str:
        return (
            "\n".join(
                f"epoch={proposal.leader_epoch}/{proposal.partition_epoch} isr="
                + ",".join(f"{member.broker_id}@{member.broker_epoch}" for member in proposal.isr)
                for _, proposal, _ in self.world.alter_partition.proposals
            )
            or "none"
        )

    # Clients and followers

    async def append(self, a: dict[str, str]) -> None:
        """Records that a producer with acks=1 has written, one batch each."""
        for _ in range(int(a.get("0", "1"))):
            self.world.append(batch(f"r{self.appended}"))
            self.appended += 1

    async def produce(self, a: dict[str, str]) -> None:
        self.requests += 1
        name = f"produce {self.requests}"

        def on_complete(results: list[PartitionProduceResult]) -> None:
            (result,) = results
            self.events.append(f"{name}: {result.error.name} base={result.base_offset}")

        acks = -1 if a.get("acks", "all") == "all" else int(a["acks"])
        request = ToldAppend(on_complete, acks, int(a.get("timeout", "30000")))
        self.world.replicas.append_records(request, request.parsed([(T, batch(f"r{self.appended}"))]))
        self.appended += 1

    async def fetch(self, a: dict[str, str]) -> None:
        self.requests += 1
        replica_id = int(a.get("replica", "-1"))
        name = f"fetch {self.requests}"

        def on_complete(results: Sequence[FetchPartitionResult]) -> None:
            (result,) = results
            diverging = (
                f" diverging={result.diverging_epoch[0]}/{result.diverging_epoch[1]}"
                if (result.diverging_epoch is not None)
                else ""
            )
            read = [value.decode() for value in values_of(result.records) if value is not None]
            self.events.append(
                f"{name}: {result.error.name} high_watermark={result.high_watermark} records={read}{diverging}"
            )

        self.world.replicas.fetch(
            FetchParams(
                version=int(a.get("version", "17")),
                replica_id=replica_id,
                replica_epoch=int(a.get("replica-epoch", "-1" if replica_id < 0 else str(10 + replica_id))),
                max_wait_ms=int(a.get("wait", "0")),
                min_bytes=int(a.get("min-bytes", "1")),
            ),
            [
                FetchPartition(
                    "t",
                    0,
                    int(a["offset"]),
                    1 << 20,
                    current_leader_epoch=int(a.get("epoch", "-1")),
                    last_fetched_epoch=int(a.get("last-epoch", "-1")),
                    log_start_offset=int(a.get("log-start", "0" if replica_id >= 0 else "-1")),
                )
            ],
            on_complete,
        )

    async def list_offset(self, a: dict[str, str]) -> str:
        try:
            query = OffsetQuery(
                int(a["timestamp"]),
                int(a.get("version", "10")),
                replica_id=int(a.get("replica", "-1")),
                current_leader_epoch=int(a.get("epoch", "-1")),
            )
            found = self.world.replicas.list_offset(T, query)
        except KafkaError as error:
            return error.code.name
        assert isinstance(found, ListedOffset)
        return f"offset={found.offset} epoch={found.leader_epoch}"

    async def end_offset(self, a: dict[str, str]) -> str:
        try:
            end = self.world.replicas.last_offset_for_leader_epoch(
                T,
                int(a["0"]),
                current_leader_epoch=int(a.get("epoch", "-1")),
                replica_id=int(a.get("replica", "-1")),
            )
        except KafkaError as error:
            return error.code.name
        return f"epoch={end.leader_epoch} end={end.end_offset}"

    async def delete_records(self, a: dict[str, str]) -> None:
        self.requests += 1
        name = f"delete-records {self.requests}"

        def on_complete(results: list[DeleteRecordsResult]) -> None:
            (result,) = results
            self.events.append(f"{name}: {result.error.name} low_watermark={result.low_watermark}")

        self.world.replicas.delete_records(
            {T: int(a["0"])}, timeout_ms=int(a.get("timeout", "30000")), on_complete=on_complete
        )


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_story(path: Path, tmp_path: Path) -> None:
    loop = SimLoop()
    asyncio.set_event_loop(loop)
    try:
        datadriven.run(path, Story(tmp_path, loop).handle)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
