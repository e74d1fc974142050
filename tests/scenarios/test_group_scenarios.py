"""Stories of consumer groups as text: tests/scenarios/groups/*.txt, in virtual time.

Clients are named by their first word; member ids are replaced by the name of the client they were given to, with a
number from the second on (`a`, `a#2`).  What a parked request answers is told as an event after the command in whose
time it came.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.group.group_messages import JoinGroupResult, MemberIdentity, MemberProtocol
from tests.support import datadriven
from tests.support.group_world import GROUP, TOPIC, GroupWorld, after, settle, subscription
from tests.support.sim_loop import SimLoop

UUID_LENGTH = len("-00000000-0000-0000-0000-000000000000")
SCENARIOS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


class Client:
    """What one consumer knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.instance_id: str | None = None
        self.joined = JoinGroupResult()


class Scenario:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.world = GroupWorld(loop)
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {}
        self.parked: dict[asyncio.Task[str], str] = {}

    def run(self, verb: str, arguments: dict[str, str]) -> str:
        return self.loop.run_until_complete(self._run(verb, dict(arguments)))

    async def _run(self, verb: str, arguments: dict[str, str]) -> str:
        command: Callable[[dict[str, str]], Coroutine[Any, Any, str]] = getattr(self, f"on_{verb.replace('-', '_')}")
        answer = await command(arguments)
        await settle()
        return "\n".join(line for line in [answer, *self._events()] if line)

    def _events(self) -> list[str]:
        done = [task for task in self.parked if task.done()]
        return [f"event: {self.parked.pop(task)} {task.result()}" for task in done]

    async def _answer(self, who: str, request: Coroutine[Any, Any, str]) -> str:
        """What is answered at once, or that it is parked."""
        task = asyncio.create_task(request, name=who)
        await settle()
        if task.done():
            return task.result()
        self.parked[task] = who
        return "parked"

    def _client(self, arguments: dict[str, str]) -> Client:
        return self.clients.setdefault(arguments["0"], Client(arguments["0"]))

    def _learn(self, client: Client, member_id: str) -> None:
        if member_id and member_id not in self.names:
            count = sum(name.split("#")[0] == client.name for name in self.names.values())
            self.names[member_id] = client.name if count == 0 else f"{client.name}#{count + 1}"

    def _named(self, member_id: str) -> str:
        """Members who have not heard their id yet go by their client's name alone."""
        return self.names.get(member_id, member_id[:-UUID_LENGTH]) or "-"

    # -- commands -----------------------------------------------------------------------------------------------------

    async def on_start(self, arguments: dict[str, str]) -> str:
        """Settings by name, with underscores for dots."""
        properties = {name.replace("_", "."): value for name, value in arguments.items()}
        self.world = GroupWorld(self.loop, properties)
        await self.world.start()
        return "started"

    async def on_advance(self, arguments: dict[str, str]) -> str:
        """Let milliseconds pass; `heartbeats=a,b` keeps those alive, whatever they hear."""
        remaining = int(arguments["0"])
        alive = [self.clients[name] for name in arguments.get("heartbeats", "").split(",") if name]
        while remaining > 0:
            step = min(remaining, 3000)
            await after(step)
            remaining -= step
            for client in alive:
                await self._heartbeat(client)
        return f"time={round(self.loop.time() * 1000)}"

    async def on_join(self, arguments: dict[str, str]) -> str:
        client = self._client(arguments)
        client.instance_id = arguments.get("instance", client.instance_id)
        if arguments.get("1") == "forget":  # the process has restarted
            client.member_id = ""
        names = arguments.get("protocols", "range").split(",")
        metadata = subscription(*arguments.get("topics", TOPIC).split(","))
        return await self._answer(f"{client.name} join", self._join(client, arguments, names, metadata))

    async def _join(self, client: Client, arguments: dict[str, str], names: list[str], metadata: bytes) -> str:
        result = await self.world.join(
            client.member_id,
            client_id=client.name,
            group_instance_id=client.instance_id,
            protocol_type=arguments.get("type", "consumer"),
            protocols=tuple(MemberProtocol(name, metadata) for name in names),
            version=int(arguments.get("version", "9")),
            session_timeout_ms=int(arguments.get("session", "10000")),
            rebalance_timeout_ms=int(arguments.get("rebalance", "60000")),
        )
        self._learn(client, result.member_id)
        if result.error.name in ("none", "member_id_required"):
            client.member_id = result.member_id
        if result.error.name != "none":
            return f"{result.error.name} member={self._named(result.member_id)}"
        client.joined = result
        members = ",".join(self._named(member.member_id) for member in result.members)
        skip = " skip_assignment" if result.skip_assignment else ""
        return (
            f"generation={result.generation} member={self._named(result.member_id)} "
            f"leader={self._named(result.leader_id)} protocol={result.protocol_name} members=[{members}]{skip}"
        )

    async def on_sync(self, arguments: dict[str, str]) -> str:
        """`assign=a:x,b:y` by the leader."""
        client = self._client(arguments)
        pairs = [pair.split(":") for pair in arguments.get("assign", "").split(",") if pair]
        assignments = {self.clients[name].member_id: text.encode() for name, text in pairs}
        return await self._answer(f"{client.name} sync", self._sync(client, arguments, assignments))

    async def _sync(self, client: Client, arguments: dict[str, str], assignments: dict[str, bytes]) -> str:
        result = await self.world.sync(
            client.joined,
            generation=int(arguments.get("generation", client.joined.generation)),
            group_instance_id=client.instance_id,
            assignments=assignments,
        )
        return result.error.name if result.error.name != "none" else f"assignment={result.assignment.decode() or '-'}"

    async def on_heartbeat(self, arguments: dict[str, str]) -> str:
        client = self._client(arguments)
        return await self._answer(f"{client.name} heartbeat", self._heartbeat(client, arguments.get("generation")))

    async def _heartbeat(self, client: Client, generation: str | None = None) -> str:
        error = await self.world.heartbeat(
            client.joined,
            generation=client.joined.generation if generation is None else int(generation),
            group_instance_id=client.instance_id,
        )
        return error.name

    async def on_leave(self, arguments: dict[str, str]) -> str:
        """By client, or `instances=i,j` as an administrator does."""
        instances = [MemberIdentity("", each) for each in arguments.get("instances", "").split(",") if each]
        members = [MemberIdentity(self._client(arguments).member_id)] if "0" in arguments else []
        result = await self.world.leave(*members, *instances)
        return " ".join(member.error.name for member in result.members)

    async def on_commit(self, arguments: dict[str, str]) -> str:
        """By a client's member, or by nobody's (`commit - 5`)."""
        who = "simple" if arguments["0"] == "-" else arguments["0"]
        return await self._answer(f"{who} commit", self._commit(arguments))

    async def _commit(self, arguments: dict[str, str]) -> str:
        client = None if arguments["0"] == "-" else self._client(arguments)
        error = await self.world.commit_code(
            int(arguments["1"]),
            None if client is None else client.joined,
            group_instance_id=None if client is None else client.instance_id,
            topic=arguments.get("topic", TOPIC),
        )
        return error.name

    async def on_fetch(self, arguments: dict[str, str]) -> str:
        return await self._answer("fetch", self._fetch(arguments.get("0") == "stable"))

    async def _fetch(self, require_stable: bool) -> str:
        result = await self.world.fetch(None, require_stable=require_stable)
        if result.error.name != "none":
            return result.error.name
        found = result.topics
        rows = [f"{topic}-{each.partition}={each.offset}" for topic, offsets in found.items() for each in offsets]
        return " ".join(rows) or "nothing"

    async def on_describe(self, arguments: dict[str, str]) -> str:
        (group,) = self.world.groups.describe_groups([GROUP], 5)
        if group.error.name != "none":
            return group.error.name
        members = ",".join(self._named(member.member_id) for member in group.members)
        found = self.world.shard.groups.find(GROUP)
        return f"{group.state} generation={found.generation if found else '-'} members=[{members}]"

    async def on_resign(self, arguments: dict[str, str]) -> str:
        """Another broker is elected; this one hears of it."""
        self.world.epoch += 1
        self.world.groups.on_resignation(0, self.world.epoch)
        return "resigned"

    async def on_elect(self, arguments: dict[str, str]) -> str:
        """This broker is elected; `load=slow` until the next `read`."""
        self.world.epoch += 1
        self.world.log.read_gate = asyncio.Event() if arguments.get("load") == "slow" else None
        self.world.groups.on_election(0, self.world.epoch)
        await settle()
        return "loading" if self.world.log.read_gate else "loaded"

    async def on_read(self, arguments: dict[str, str]) -> str:
        """The disk answers."""
        gate, self.world.log.read_gate = self.world.log.read_gate, None
        assert gate is not None, "nothing is being read"
        gate.set()
        return "read"

    async def on_replicas(self, arguments: dict[str, str]) -> str:
        """`stall`: the followers copy nothing; `catch-up`."""
        self.world.log.commits_at_once = arguments["0"] == "catch-up"
        if self.world.log.commits_at_once:
            self.world.log.commit()
        return f"high_watermark={self.world.log.high_watermark} end={self.world.log.log_end_offset}"

    async def on_failover(self, arguments: dict[str, str]) -> str:
        """Another broker takes over the log: everything in memory is gone."""
        await self.world.restart()
        return "loaded"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_group_scenario(path: Path) -> None:
    loop = SimLoop(seed=1)
    asyncio.set_event_loop(loop)
    try:
        datadriven.run(path, Scenario(loop).run)
        loop.raise_failures()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(settle())
        asyncio.set_event_loop(None)
        loop.close()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 6
