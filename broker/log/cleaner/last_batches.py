"""LastBatches: the newest batch of each producer, which a pass leaves in the log, without its records if need be."""

from collections.abc import Mapping
from typing import NamedTuple

from broker.log.producer_state_entry import ProducerStateEntry


class LastBatch(NamedTuple):
    """What a log knew of a producer when a pass began; no offset: by markers alone."""

    last_offset: int | None
    producer_epoch: int


LastBatches = Mapping[int, LastBatch]


def last_batches(producers: Mapping[int, ProducerStateEntry]) -> LastBatches:
    """Of each producer, by its id (Kafka: UnifiedLog.lastRecordsOfActiveProducers)."""
    return {
        producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
        for producer_id, entry in producers.items()
    }
