"""Members of a consumer group that speak the wire, and a ledger of what they were told.

Members join, sync, heartbeat and commit as the Java consumer's classic protocol does.  The ledger complains when a
generation has two owners of a partition, when a member's generation goes back, or when a commit is lost.
"""

import asyncio
from collections import Counter
from typing import Any, Final

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.response_schema import RequestSchema
from tests.support.sim_client import Violation
from tests.support.sim_cluster_client import CoordinatorClient

SESSION_TIMEOUT_MS: Final = 6_000
REBALANCE_TIMEOUT_MS: Final = 4_000
JOIN_TIMEOUT_S: Final = 12.0  # a join waits for the others
PROTOCOL_TYPE: Final = "sim"
ROUND_S: Final = 0.4

JOIN_AGAIN: Final = frozenset({ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation})


class GroupLedger:
    """What all members of one group, and whoever reads its offsets, may rely on."""

    def __init__(self, group: str, topic: str, partitions: int) -> None:
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.owners: dict[tuple[int, int], str] = {}
        self.seen: Counter[str] = Counter()
        self.newest_generation = 0
        self._sent = [0] * partitions
        self._acknowledged = [-1] * partitions
        self._unanswered: list[dict[int, None]] = [{} for _ in range(partitions)]

    def on_assigned(self, generation: int, member_id: str, partitions: list[int]) -> None:
        self.newest_generation = max(self.newest_generation, generation)
        self.seen["group assignment"] += 1
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                raise Violation(
                    f"{self.group}: generation {generation} gives partition {partition} to {owner} and to {member_id}"
                )

    def next_offset(self, partition: int) -> int:
        """Commits of all members count up together."""
        self._sent[partition] += 1
        self._unanswered[partition][self._sent[partition]] = None
        return self._sent[partition]

    def on_committed(self, partition: int, offset: int) -> None:
        del self._unanswered[partition][offset]
        self._acknowledged[partition] = max(self._acknowledged[partition], offset)
        self.seen["group commit"] += 1

    def on_refused(self, partition: int, offset: int) -> None:
        """By an answer that says it was not done."""
        del self._unanswered[partition][offset]

    def check(self, partition: int, committed: int, metadata: str) -> None:
        """An attempt nobody answered may have been carried out, at any time since."""
        acknowledged = self._acknowledged[partition]
        if committed < acknowledged and committed not in self._unanswered[partition]:
            raise Violation(
                f"{self.group}: partition {partition} has offset {committed}, {acknowledged} was acknowledged"
            )
        if committed > self._sent[partition] or (committed >= 0 and metadata != f"m{committed}"):
            raise Violation(
                f"{self.group}: partition {partition} has offset {committed} {metadata!r}, which nobody sent"
            )


class GroupMember:
    """One member; `run` until `is_stopping`."""

    def __init__(self, client: CoordinatorClient, ledger: GroupLedger) -> None:
        self.is_stopping = False
        self.generation = -1
        self.assigned: list[int] = []
        self._client = client
        self._ledger = ledger
        self._member_id = ""

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._join()
                while not self.is_stopping and await self._live():
                    await asyncio.sleep(ROUND_S * (0.5 + self._client.chance.random()))
            except (ConnectionError, TimeoutError):
                self._client.on_refused()
                await self._client.pause()

    def _refused(self, error: ErrorCode) -> bool:
        """Whether to go on at all; whatever the answer, what was assigned is not ours until the next sync."""
        self._ledger.seen[f"group {error.name}"] += 1
        if error in JOIN_AGAIN:
            return False
        if error is ErrorCode.unknown_member_id:
            self._member_id = ""
            return False
        if error not in self._client.retriable:
            raise Violation(f"a member of {self._ledger.group} was answered {error.name}")
        self._client.on_refused()
        return True

    async def _ask(self, api_key: ApiKey, version: int, request: Any, timeout_s: float = 4.0) -> Any:
        connection = await self._client.connection()
        try:
            async with asyncio.timeout(timeout_s):
                return await connection.submit(api_key, version, request)
        except TimeoutError:
            connection.close()
            raise

    async def _join(self) -> None:
        """Until a generation has been joined and its assignment is known."""
        while not self.is_stopping:
            self.assigned = []
            joined = await self._ask(ApiKey.JOIN_GROUP, 7, self._join_request(), JOIN_TIMEOUT_S)
            error = ErrorCode(joined.error_code)
            if error is ErrorCode.member_id_required:
                self._member_id = str(joined.member_id)
                continue
            if error is not ErrorCode.none:
                if self._refused(error):
                    await self._client.pause()
                continue
            self._member_id = str(joined.member_id)
            if joined.generation_id < self.generation:
                raise Violation(
                    f"{self._ledger.group}: {self._member_id} was assigned in generation {self.generation} "
                    f"and has now joined {joined.generation_id}"
                )
            if await self._sync(joined):
                return

    def _join_request(self) -> Any:
        schema = RequestSchema.of(ApiKey.JOIN_GROUP, 7)
        return schema.JoinGroupRequest(
            group_id=self._ledger.group,
            session_timeout=milliseconds(SESSION_TIMEOUT_MS),
            rebalance_timeout=milliseconds(REBALANCE_TIMEOUT_MS),
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=(schema.JoinGroupRequestProtocol(name="round", metadata=b""),),
        )

    async def _sync(self, joined: Any) -> bool:
        schema = RequestSchema.of(ApiKey.SYNC_GROUP, 5)
        assignments = ()
        if joined.leader == joined.member_id:
            members = sorted(str(member.member_id) for member in joined.members)
            shares: dict[str, list[int]] = {member: [] for member in members}
            for partition in range(self._ledger.partitions):
                shares[members[(partition + joined.generation_id) % len(members)]].append(partition)
            assignments = tuple(
                schema.SyncGroupRequestAssignment(member_id=member, assignment=bytes(share))
                for member, share in shares.items()
            )
        request = schema.SyncGroupRequest(
            group_id=self._ledger.group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name="round",
            assignments=assignments,
        )
        answer = await self._ask(ApiKey.SYNC_GROUP, 5, request, JOIN_TIMEOUT_S)
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.none:
            if self._refused(error):
                await self._client.pause()
            return False
        self.generation = int(joined.generation_id)
        self.assigned = list(answer.assignment)
        self._ledger.on_assigned(self.generation, self._member_id, self.assigned)
        return True

    async def _live(self) -> bool:
        """A heartbeat and commits; False when the group must be joined again."""
        schema = RequestSchema.of(ApiKey.HEARTBEAT, 4)
        request = schema.HeartbeatRequest(
            group_id=self._ledger.group,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=None,
        )
        error = ErrorCode((await self._ask(ApiKey.HEARTBEAT, 4, request)).error_code)
        if error is not ErrorCode.none:
            return self._refused(error)
        for partition in self.assigned:
            error = await self._commit(partition)
            if error is not ErrorCode.none:
                return self._refused(error)
        return True

    async def _commit(self, partition: int) -> ErrorCode:
        schema = RequestSchema.of(ApiKey.OFFSET_COMMIT, 7)
        sent = self._ledger.next_offset(partition)
        offset = schema.OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=sent,
            committed_leader_epoch=-1,
            committed_metadata=f"m{sent}",
        )
        request = schema.OffsetCommitRequest(
            group_id=self._ledger.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            group_instance_id=None,
            topics=(schema.OffsetCommitRequestTopic(name=self._ledger.topic, partitions=(offset,)),),
        )
        answer = await self._ask(ApiKey.OFFSET_COMMIT, 7, request)
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        if error is ErrorCode.none:
            self._ledger.on_committed(partition, sent)
        elif error in JOIN_AGAIN or error is ErrorCode.unknown_member_id:
            self._ledger.on_refused(partition, sent)
        return error


async def check_offsets(client: CoordinatorClient, ledger: GroupLedger) -> None:
    """What was acknowledged must be there."""
    schema = RequestSchema.of(ApiKey.OFFSET_FETCH, 7)
    topic = schema.OffsetFetchRequestTopic(name=ledger.topic, partition_indexes=tuple(range(ledger.partitions)))
    request = schema.OffsetFetchRequest(group_id=ledger.group, topics=(topic,), require_stable=False)
    answer, error, _ = await client.insist(ApiKey.OFFSET_FETCH, 7, request, lambda answer: ErrorCode(answer.error_code))
    if error is not ErrorCode.none:
        raise Violation(f"OffsetFetch of {ledger.group} answered {error.name}")
    for each in answer.topics[0].partitions:
        ledger.check(int(each.partition_index), int(each.committed_offset), each.metadata or "")
