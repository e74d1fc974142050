"""What clients were told and saw during a run, and the judgement over it once the cluster is calm.

A record's value is `producer.sequence`, with padding behind a blank: a producer numbers its records upwards, so order
can be judged without remembering what was sent.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

EXAMPLES_MAX = 10


class Written(NamedTuple):
    """One record of a producer: its identity."""

    producer: int
    sequence: int


class Acknowledgement(NamedTuple):
    """A producer was told that its record stands at this offset; -1 when it was only told that it is written."""

    record: Written
    partition: int
    offset: int
    at_s: float  # monotonic


class Entry(NamedTuple):
    """One record as a reader got it."""

    offset: int
    record: Written


Log = Mapping[int, Sequence[Entry]]  # by partition, in the order in which it was read


def parse_value(value: bytes | str) -> Written:
    text = value.decode() if isinstance(value, bytes) else value
    producer, _, sequence = text.partition(" ")[0].partition(".")
    return Written(int(producer), int(sequence))


@dataclass
class Verdict:
    """How often each promise was broken; `examples` says where."""

    acknowledged: int = 0
    read: int = 0
    lost: int = 0  # acknowledged, and not in the log
    duplicates: int = 0  # in the log more than once
    moved: int = 0  # in the log, and not at the offset that was acknowledged
    reordered: int = 0  # behind a later record of its producer in its partition
    gaps: int = 0  # offsets that do not follow each other
    vanished: int = 0  # a reader got it during the run, and the log does not have it there
    examples: list[str] = field(default_factory=list)

    @property
    def broken(self) -> int:
        return self.lost + self.duplicates + self.moved + self.reordered + self.gaps + self.vanished

    def note(self, example: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(example)


def judge(acknowledged: Sequence[Acknowledgement], log: Log, observed: Log | None = None) -> Verdict:
    """Hold what producers were told, and what a reader saw meanwhile, against the log at the end."""
    verdict = Verdict(acknowledged=len(acknowledged), read=sum(map(len, log.values())))
    _judge_log(log, verdict)
    _judge_acknowledgements(acknowledged, log, verdict)
    for partition, entries in (observed or {}).items():
        at = dict(log.get(partition, ()))
        for entry in entries:
            if at.get(entry.offset) != entry.record:
                verdict.vanished += 1
                verdict.note(f"read {entry} of partition {partition} during the run, now {at.get(entry.offset)}")
    return verdict


def _judge_log(log: Log, verdict: Verdict) -> None:
    times: Counter[Written] = Counter(entry.record for entries in log.values() for entry in entries)
    for record, count in times.items():
        if count > 1:
            verdict.duplicates += count - 1
            verdict.note(f"{record} is in the log {count} times")
    for partition, entries in log.items():
        latest: dict[int, int] = {}
        for index, (offset, record) in enumerate(entries):
            if offset != index:
                verdict.gaps += 1
                verdict.note(f"partition {partition}: offset {offset} where {index} is due")
            before = latest.get(record.producer, -1)
            if record.sequence < before:
                verdict.reordered += 1
                verdict.note(f"partition {partition}: {record} at {offset} behind {before}")
            latest[record.producer] = max(before, record.sequence)


def _judge_acknowledgements(acknowledged: Iterable[Acknowledgement], log: Log, verdict: Verdict) -> None:
    places: dict[Written, set[tuple[int, int]]] = {}
    for partition, entries in log.items():
        for offset, record in entries:
            places.setdefault(record, set()).add((partition, offset))
    for record, partition, offset, _ in acknowledged:
        found = places.get(record)
        if found is None:
            verdict.lost += 1
            verdict.note(f"{record}, acknowledged at {partition}:{offset}, is lost")
        elif offset >= 0 and (partition, offset) not in found:
            verdict.moved += 1
            verdict.note(f"{record}, acknowledged at {partition}:{offset}, is at {sorted(found)}")


class Unavailability(NamedTuple):
    """Of one partition: how long no record was acknowledged."""

    longest_s: float
    above_one_second_s: float  # the sum of the gaps longer than a second


def unavailability(
    acknowledged: Iterable[Acknowledgement], partitions: Iterable[int], start_s: float, end_s: float
) -> dict[int, Unavailability]:
    """Between two moments, by partition; records were offered to each all the time."""
    times: dict[int, list[float]] = {partition: [] for partition in partitions}
    for each in acknowledged:
        if start_s <= each.at_s <= end_s:
            times[each.partition].append(each.at_s)
    result = {}
    for partition, moments in times.items():
        moments = [start_s, *sorted(moments), end_s]
        gaps = [after - before for before, after in itertools.pairwise(moments)]
        result[partition] = Unavailability(max(gaps), sum(gap for gap in gaps if gap > 1))
    return result
