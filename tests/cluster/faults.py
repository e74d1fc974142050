"""Faults of a run, drawn from a seed: processes killed, paused or restarted, links cut, buckets taken away; each ends
after its time."""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.cluster_process import Cluster
from tests.support.relay import CLIENT, CONTROLLER, Pair, Relays

FAULTS: Final = ("kill", "pause", "cut", "roll", "bucket", "zone")
POLL_S: Final = 0.02


class Event(NamedTuple):
    """Something that was done to the cluster, `at_s` after the start of the run."""

    at_s: float
    what: str


@dataclass
class Affliction:
    """A fault that lasts until `end_s`, when `cure` takes it back."""

    end_s: float
    node_id: int | None
    cure: Callable[[], None]
    pairs: frozenset[Pair] = frozenset()


def both_ways(pairs: Iterable[Pair]) -> frozenset[Pair]:
    return frozenset(way for pair in pairs for way in (pair, pair[::-1]))


def cuts_around(victim: int, others: Iterable[int], *, holds_controller: bool) -> dict[str, frozenset[Pair]]:
    """Every kind of cut around a broker, by name: directed pairs that stand still.

    The broker that holds the controller is never cut from it; cut from all, it takes the controller along.
    """
    me, peers = str(victim), [str(other) for other in others]
    clients = both_ways([(me, CLIENT)])
    between = both_ways((me, peer) for peer in peers)
    if holds_controller:
        controller = both_ways((CONTROLLER, peer) for peer in peers)
        to_all = {(me, peer) for peer in peers} | {(CONTROLLER, peer) for peer in peers} | {(me, CLIENT)}
    else:
        controller = both_ways([(me, CONTROLLER)])
        to_all = {(me, peer) for peer in peers} | {(me, CONTROLLER), (me, CLIENT)}
    cuts = {
        "all": clients | between | controller,
        "all but clients": between | controller,
        "the controller": controller,
        "the other brokers": between,
        "clients": clients,
        "what it sends to all": frozenset(to_all),
        "what all send to it": frozenset(pair[::-1] for pair in to_all),
        "what the controller hears": frozenset(pair for pair in controller if pair[1] == CONTROLLER),
        "what the controller says": frozenset(pair for pair in controller if pair[0] == CONTROLLER),
    }
    for peer in peers:
        cuts[f"broker {peer}"] = both_ways([(me, peer)])
        cuts[f"what it sends to broker {peer}"] = frozenset({(me, peer)})
    return cuts


@dataclass
class Faults:
    """Draws and does them.  `counts` says how often each kind occurred, `events` when."""

    cluster: Cluster
    rng: random.Random
    relays: Relays | None = None
    hits_controller: bool = True  # a dedicated controller is a victim as well
    down_s: tuple[float, float] = (0.0, 3.0)
    counts: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    buckets: Mapping[int, Path] = field(default_factory=dict)  # directories, by the broker whose zone they are in
    began_s: float = field(default_factory=time.monotonic)
    active: list[Affliction] = field(default_factory=list)

    def note(self, kind: str, what: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.events.append(Event(round(time.monotonic() - self.began_s, 2), what))

    def victims(self) -> list[int]:
        """Nodes to which nothing is happening."""
        afflicted = {affliction.node_id for affliction in self.active}
        return [
            node_id
            for node_id, node in self.cluster.nodes.items()
            if node_id not in afflicted and node.is_running() and ("broker" in node.roles or self.hits_controller)
        ]

    def run(self, kinds: Mapping[str, float], duration_s: float, every_s: float) -> None:
        """One fault every `every_s`; `kinds` says for how long each lasts.  At the end all are taken back.

        Each kind occurs once before any occurs again, and a machine that stands still meanwhile lets none out.
        """
        began_s, made, kinds_left = time.monotonic(), 0, list[str]()
        planned = round(duration_s / every_s)
        while made < planned or time.monotonic() < began_s + duration_s:
            self._look_at_processes()
            self._cure(time.monotonic())
            if made < planned and time.monotonic() >= began_s + (made + 0.5) * every_s:
                kinds_left = kinds_left or self.rng.sample(sorted(kinds), len(kinds))
                kind = kinds_left.pop()
                self._inflict(kind, kinds[kind])
                made += 1
            time.sleep(POLL_S)
        self._cure(float("inf"))

    def _inflict(self, kind: str, hold_s: float) -> None:
        victims = self.victims()
        if kind in ("bucket", "zone"):
            victims = [node_id for node_id in victims if node_id in self.buckets]
        if not victims:
            self.note("none left", f"no victim for {kind}")
            return
        victim = self.rng.choice(victims)
        getattr(self, f"_{kind}")(victim, time.monotonic() + hold_s)

    def _kill(self, victim: int, _end_s: float) -> None:
        self.cluster.kill(victim)
        down_s = self.rng.uniform(*self.down_s)
        self.note("kill", f"kill -9 node {victim}, down for {down_s:.1f} s")
        self.active.append(Affliction(time.monotonic() + down_s, victim, lambda: self.cluster.launch(victim)))

    def _pause(self, victim: int, end_s: float) -> None:
        self.cluster.pause(victim)
        self.note("pause", f"SIGSTOP node {victim} for {end_s - time.monotonic():.1f} s")
        self.active.append(Affliction(end_s, victim, lambda: self.cluster.resume(victim)))

    def _bucket(self, victim: int, end_s: float) -> None:
        """The bucket of the broker's zone is gone; the broker is not."""
        self.note("bucket", f"the bucket of node {victim} is away for {end_s - time.monotonic():.1f} s")
        self._take_bucket(victim)
        self.active.append(Affliction(end_s, victim, lambda: self._return_bucket(victim)))

    def _zone(self, victim: int, end_s: float) -> None:
        """The broker dies together with the bucket it uploads to."""
        self.cluster.kill(victim)
        self._take_bucket(victim)
        self.note("zone", f"kill -9 node {victim} and its bucket is away for {end_s - time.monotonic():.1f} s")
        self.active.append(Affliction(end_s, victim, lambda: self._return_zone(victim)))

    def _take_bucket(self, victim: int) -> None:
        bucket = self.buckets[victim]
        bucket.rename(bucket.with_name(bucket.name + "-away"))

    def _return_bucket(self, victim: int) -> None:
        bucket = self.buckets[victim]
        bucket.with_name(bucket.name + "-away").rename(bucket)

    def _return_zone(self, victim: int) -> None:
        self._return_bucket(victim)
        self.cluster.launch(victim)

    def _cut(self, victim: int, end_s: float) -> None:
        brokers = self.cluster.node_ids
        if victim not in brokers:  # a dedicated controller: cut from all
            name, pairs = "all", both_ways((CONTROLLER, str(node_id)) for node_id in brokers)
        else:
            others = [node_id for node_id in brokers if node_id != victim]
            holds = "controller" in self.cluster.nodes[victim].roles
            cuts = cuts_around(victim, others, holds_controller=holds)
            name = self.rng.choice(sorted(cuts))
            pairs = cuts[name]
        resets = self.rng.random() < 0.5
        self.note("cut", f"node {victim} is cut from {name} for {end_s - time.monotonic():.1f} s" + " (reset)" * resets)
        self.active.append(Affliction(end_s, victim, lambda: self._mend(pairs, resets), pairs))
        self._apply_cuts()

    def _apply_cuts(self) -> None:
        assert self.relays is not None, "cuts need relays"
        self.relays.cut(frozenset().union(*(affliction.pairs for affliction in self.active)))

    def _mend(self, pairs: frozenset[Pair], resets: bool) -> None:
        assert self.relays is not None
        if resets:
            self.relays.reset(pairs)
        self._apply_cuts()

    def _roll(self, victim: int, _end_s: float) -> None:
        """SIGTERM, wait for its end, start it again."""
        code = self.cluster.graceful_stop(victim)
        self.note("restart", f"node {victim} was stopped in order")
        if code != 0:
            self.deaths.append(f"node {victim} ended with {code} when it was told to stop")
        self.cluster.launch(victim)

    def _cure(self, until_s: float) -> None:
        for affliction in [each for each in self.active if each.end_s <= until_s]:
            self.active.remove(affliction)
            affliction.cure()

    def _look_at_processes(self) -> None:
        """A process that ended by itself is a finding; it is started again, as a supervisor would."""
        afflicted = {affliction.node_id for affliction in self.active if not affliction.pairs}
        for node_id, node in self.cluster.nodes.items():
            if node_id not in afflicted and not node.is_running():
                at_s = time.monotonic() - self.began_s
                self.deaths.append(f"node {node_id} ended by itself at {at_s:.1f} s:\n{node.log_tail(15)}")
                node.launch()

    def roll_all(self, topic: str) -> None:
        """Every node in turn, each once the cluster is whole again: a rolling restart by the book."""
        nodes, last = self.cluster.nodes, self.cluster.controller
        ours = [node_id for node_id, node in nodes.items() if "broker" in node.roles or node is last]
        for node_id in sorted(ours, key=lambda node_id: nodes[node_id] is last):
            self._roll(node_id, 0)
            nodes[node_id].wait_until_ready()
            self.cluster.wait_for_full_isr(topic)
