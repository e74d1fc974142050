"""The checker itself: it must find what was planted, and nothing else."""

import pytest

from tests.cluster.history import (
    Acknowledgement,
    Entry,
    Log,
    Unavailability,
    Written,
    judge,
    parse_value,
    unavailability,
)


def log_of(*records: tuple[int, int]) -> list[Entry]:
    return [Entry(offset, Written(*record)) for offset, record in enumerate(records)]


def acknowledged(log: Log) -> list[Acknowledgement]:
    return [
        Acknowledgement(record, partition, offset, 0.0)
        for partition, entries in log.items()
        for offset, record in entries
    ]


GOOD: Log = {0: log_of((1, 0), (2, 0), (1, 2), (2, 7)), 1: log_of((1, 1), (1, 3))}


def test_a_faultless_run_has_no_findings() -> None:
    verdict = judge(acknowledged(GOOD), GOOD, GOOD)
    assert (verdict.acknowledged, verdict.read, verdict.broken, verdict.examples) == (6, 6, 0, [])


def test_an_unacknowledged_record_may_be_there() -> None:
    assert judge(acknowledged(GOOD)[1:], GOOD).broken == 0


def test_a_lost_record_is_found() -> None:
    log = {0: log_of((1, 0), (2, 0), (1, 2)), 1: GOOD[1]}
    verdict = judge(acknowledged(GOOD), log)
    assert (verdict.lost, verdict.broken) == (1, 1)
    assert "sequence=7" in verdict.examples[0]


def test_a_lost_record_in_the_middle_moves_those_behind_it() -> None:
    log = {0: log_of((1, 0), (1, 2), (2, 7)), 1: GOOD[1]}
    verdict = judge(acknowledged(GOOD), log)
    assert (verdict.lost, verdict.moved, verdict.broken) == (1, 2, 3)


def test_a_duplicate_is_found() -> None:
    log = {0: [*GOOD[0], Entry(4, Written(2, 7))], 1: GOOD[1]}
    verdict = judge(acknowledged(GOOD), log)
    assert (verdict.duplicates, verdict.broken) == (1, 1)


def test_a_duplicate_in_another_partition_is_found() -> None:
    log = {0: GOOD[0], 1: [*GOOD[1], Entry(2, Written(2, 7))]}
    assert judge(acknowledged(GOOD), log).duplicates == 1


def test_a_changed_order_is_found() -> None:
    log = {0: log_of((1, 2), (2, 0), (1, 0), (2, 7)), 1: GOOD[1]}
    verdict = judge([], log)
    assert (verdict.reordered, verdict.broken) == (1, 1)


def test_a_gap_in_the_offsets_is_found() -> None:
    log = {0: [Entry(0, Written(1, 0)), Entry(2, Written(1, 1))]}
    assert judge([], log).gaps == 1


def test_a_record_a_reader_saw_and_that_is_not_there_any_more_is_found() -> None:
    observed = {1: [*GOOD[1], Entry(2, Written(9, 9))]}
    verdict = judge(acknowledged(GOOD), GOOD, observed)
    assert (verdict.vanished, verdict.broken) == (1, 1)


def test_an_acknowledgement_without_an_offset_only_promises_the_record() -> None:
    told = [Acknowledgement(Written(2, 7), 0, -1, 0.0)]
    assert judge(told, GOOD).broken == 0
    assert judge(told, {0: GOOD[0][:3]}).lost == 1


@pytest.mark.parametrize("value", [b"3.17", "3.17", b"3.17 xxxx"])
def test_a_value_names_its_producer_and_number(value: bytes | str) -> None:
    assert parse_value(value) == Written(3, 17)


def test_unavailability_is_the_longest_gap_and_the_sum_of_those_over_a_second() -> None:
    told = [Acknowledgement(Written(1, number), 0, number, at) for number, at in enumerate([10.5, 14.0, 14.5, 17.0])]
    assert unavailability(told, [0, 1], 10.0, 18.0) == {
        0: Unavailability(3.5, 6.0),
        1: Unavailability(8.0, 8.0),
    }
