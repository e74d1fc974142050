"""Fill a broker, Apache Kafka or ours, with one of each kind of thing that it keeps on its disk."""

import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from broker.records.record_batch import batches
from tests.support.patience import PATIENCE_S, until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUPS = {"readers": ["orders", "codecs"], "others": ["orders"], "none": ["orders"]}

SMALL_SEGMENTS = {"internal.segment.bytes": "12000", "index.interval.bytes": "500"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "orders": (2, {**SMALL_SEGMENTS, "segment.index.bytes": str(10 * 1024 * 1024)}),
    "codecs": (1, {"message.timestamp.type": "CreateTime"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "transactions": (1, {**SMALL_SEGMENTS}),
    "compacted": (
        1,
        {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "6000",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "600000",
        },
    ),
    "trimmed": (1, {"internal.segment.bytes": "3000"}),
    "empty": (1, {}),
}


class Cluster:
    """A broker, by where clients find it and by its data directory."""

    def __init__(self, bootstrap: str, data: Path, *, has_transactions: bool) -> None:
        self._bootstrap = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._data = data
        self._has_transactions = has_transactions
        self._open: list[confluent_kafka.Producer] = []

    def create_topics(self) -> None:
        admin = AdminClient(self._bootstrap)
        topics = [NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]
        for future in admin.create_topics(topics).values():
            future.result(PATIENCE_S)

    def fill(self, turn: int) -> None:
        """Everything once; each turn has records of its own."""
        self._produce("orders", 150, turn, {"enable.idempotence": True}, partitions=2)
        self._produce("orders", 30, turn, {"acks": 1}, partitions=2)
        for codec in CODECS:
            self._produce("codecs", 20, turn, {"compression.type": codec, "linger.ms": 100})
            self._produce("stamped", 5, turn, {"compression.type": codec, "linger.ms": 100})
        if self._has_transactions:
            for number in range(3):
                self._transaction(f"tx-{number}", turn, commit=True)
                self._transaction(f"tx-{number}", turn, commit=False)
            self._interleaved_transactions(turn)
        self._compactable(turn)
        self._produce("trimmed", 60, turn, {"enable.idempotence": True}, has_distinct_timestamps=True)
        self._read("readers", "orders", 40 * turn)
        self._read("readers", "codecs", 10 * turn)
        self._read("others", "orders", 7)

    def _producer(self, settings: dict[str, Any]) -> confluent_kafka.Producer:
        return confluent_kafka.Producer({**self._bootstrap, "linger.ms": 0, **settings})

    def _produce(
        self,
        topic: str,
        count: int,
        turn: int,
        settings: dict[str, Any],
        partitions: int = 1,
        *,
        has_distinct_timestamps: bool = False,
    ) -> None:
        """Records of one millisecond have the same timestamp, unless these are to be distinct.

        Apache Kafka looks for a timestamp in the first segment that reaches it, deleted records included: it finds
        nothing if a segment below the log start offset ends in the millisecond of the first record that is left.
        """
        producer = self._producer(settings)
        first_timestamp = time.time_ns() // 1_000_000
        for number in range(count):
            value = f"{topic} {turn} {number} " + "x" * (number % 40)
            headers = [("turn", str(turn).encode())] if number % 3 == 0 else None
            timestamp = first_timestamp + number if has_distinct_timestamps else 0  # 0 is the client's own
            producer.produce(topic, value, str(number), number % partitions, timestamp=timestamp, headers=headers)
            if settings.get("linger.ms") is None and number % 3 == 0:
                producer.flush(PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0

    def _transactional(self, transactional_id: str) -> confluent_kafka.Producer:
        producer = self._producer({"transactional.id": transactional_id, "transaction.timeout.ms": 900_000})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        return producer

    def _transaction(self, transactional_id: str, turn: int, *, commit: bool) -> None:
        producer = self._transactional(transactional_id)
        for number in range(8):
            producer.produce("transactions", f"{transactional_id} {turn} {commit} {number}" + "y" * 100, partition=0)
            producer.flush(PATIENCE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)

    def _interleaved_transactions(self, turn: int) -> None:
        one, other = self._transactional("one"), self._transactional("other")
        for number in range(4):
            for producer in (one, other):
                producer.produce("transactions", f"interleaved {turn} {number}", partition=0)
                producer.flush(PATIENCE_S)
        other.abort_transaction(PATIENCE_S)
        one.produce("transactions", f"interleaved {turn} last", partition=0)
        one.flush(PATIENCE_S)
        one.commit_transaction(PATIENCE_S)

    def begin_transaction(self, transactional_id: str) -> None:
        producer = self._transactional(transactional_id)
        for number in range(3):
            producer.produce("transactions", f"{transactional_id} {number}", partition=0)
            producer.flush(PATIENCE_S)
        self._open.append(producer)  # not ended

    def abort_open_transactions(self) -> None:
        while self._open:
            self._open.pop().abort_transaction(PATIENCE_S)

    def _compactable(self, turn: int) -> None:
        producer = self._producer({"enable.idempotence": True})
        for number in range(120):
            value = None if number % 17 == 0 else f"compacted {turn} {number} " + "z" * 60
            producer.produce("compacted", value, key=f"key-{number % 13}", partition=0)
            producer.flush(PATIENCE_S)

    def _read(self, group: str, topic: str, count: int) -> None:
        consumer = confluent_kafka.Consumer(
            {**self._bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([topic])
        messages: list[confluent_kafka.Message] = []

        def are_read() -> bool:
            messages.extend(consumer.consume(count - len(messages), 1))
            return len(messages) >= count

        until(are_read, f"{count} records of {topic}", lambda: len(messages), every_s=0)
        for message in messages[-3:]:
            assert message.error() is None
            consumer.commit(message, asynchronous=False)
        consumer.close()

    def trim(self, offset: int) -> None:
        admin = AdminClient(self._bootstrap)
        partition = confluent_kafka.TopicPartition("trimmed", 0, offset)
        admin.delete_records([partition])[partition].result(PATIENCE_S)

    def wait_for_the_cleaner(self) -> None:
        """Until nothing but the active segment of the compacted topic holds a key twice."""
        until(self._is_cleaned, "the log cleaner has done its work", every_s=0.5)

    def _is_cleaned(self) -> bool:
        segments = sorted((self._data / "compacted-0").glob("*.log"))[:-1]
        keys = [
            record.key for segment in segments for batch in batches(segment.read_bytes()) for record in batch.records()
        ]
        return bool(keys) and len(keys) == len(set(keys))
