"""What followers get of an object: as few ranges as can be, with what lies between their slices (`plan_ranges`)."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from broker.common.chance import Chance
from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.wal.objects.object_ranges import plan_ranges
from broker.wal.objects.wal_entry import WalEntry

SAMPLED_SLICES: Final = 1200  # in however many objects they are
_GRID: Final = 1.15  # what is sampled once holds for numbers up to so much apart
_SEED: Final = 1176
_TOPIC: Final = UUID(int=1 << 80)


@dataclass(frozen=True, slots=True)
class Reads:
    """Of one object by all brokers: requests, and bytes got for each byte that somebody wanted."""

    gets: float
    amplification: float


def expected_brokers(slices: float, followers: int, candidates: float) -> float:
    """How many brokers follow at least one of so many partitions, whose followers are any of the candidates."""
    if candidates <= 0 or followers <= 0:
        return 0.0
    if candidates <= followers:
        return candidates
    missed: float = (1 - followers / candidates) ** slices
    return candidates * (1 - missed)


def reads_of(*, slices: float, slice_bytes: float, brokers: int, zones: int, followers: int) -> Reads:
    """Expected.  Where every broker follows everything the range is the whole object; else objects are sampled."""
    if followers <= 0:
        return Reads(0.0, 1.0)
    if followers >= brokers - 1:
        return Reads(float(brokers - 1), 1.0)
    whole = _on_grid(slices)
    sampled = _sampled(whole, _on_grid(slice_bytes), brokers, zones, followers)
    candidates = candidates_of(brokers, zones, followers)
    # The formula knows the numbers between those of the grid.
    scale = expected_brokers(slices, followers, candidates) / expected_brokers(whole, followers, candidates)
    return Reads(sampled.gets * scale, sampled.amplification)


def candidates_of(brokers: int, zones: int, followers: int) -> float:
    """Brokers that may follow what one of them leads."""
    return brokers * (1 - 1 / zones) if zones > followers else brokers - 1


def _on_grid(value: float) -> int:
    return max(1, round(_GRID ** round(math.log(max(value, 1.0), _GRID))))


@lru_cache(maxsize=4096)
def _sampled(slices: int, slice_bytes: int, brokers: int, zones: int, followers: int) -> Reads:
    chance = Chance(_SEED)
    objects = max(4, SAMPLED_SLICES // slices)
    gets = got = 0
    for _ in range(objects):
        placed = sorted(followers_by_chance(chance, brokers, zones, followers) for _ in range(slices))
        wanted: dict[int, list[WalEntry]] = {}
        for index, chosen in enumerate(placed):  # in the order in which an object has them
            entry = _entry(index, index * slice_bytes, slice_bytes)
            for broker in chosen:
                wanted.setdefault(broker, []).append(entry)
        for entries in wanted.values():
            ranges = plan_ranges(entries)
            gets += len(ranges)
            got += sum(each.size for each in ranges)
    return Reads(gets / objects, got / (objects * slices * followers * slice_bytes))


def followers_by_chance(chance: Chance, brokers: int, zones: int, followers: int) -> tuple[int, ...]:
    """Of a partition that broker 0 leads; the zone of a broker is its number modulo the zones."""
    chosen: set[int] = set()
    if zones > followers:
        others = list(range(1, zones))
        chance.shuffle(others)
        for zone in others[:followers]:
            in_zone = (brokers - zone + zones - 1) // zones
            chosen.add(zone + zones * chance.below(in_zone))
    while len(chosen) < followers:
        chosen.add(1 + chance.below(brokers - 1))
    return tuple(sorted(chosen))


def _entry(index: int, position: int, size: int) -> WalEntry:
    return WalEntry(
        partition=TopicIdPartition(_TOPIC, "t", index),
        slice_id=_TOPIC,
        combined_segment_id=_TOPIC,
        broker_id=0,
        leader_epoch=0,
        start_offset=0,
        end_offset=0,
        leader_epochs=(EpochEntry(0, 0),),
        bucket="b",
        object_key="k",
        position=position,
        size=size,
        crc32c=0,
        event_timestamp_ms=0,
        state=1,
    )
