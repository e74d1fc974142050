"""Every ordinary client behind the same two verbs, each with its default settings except for the codec."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiokafka
import confluent_kafka
import kafka

from tests.support import java_tools
from tests.support.patience import PATIENCE_MS, PATIENCE_S, until

Produce = Callable[[str, str, str, Sequence[str]], None]
Consume = Callable[[str, str, str, int], list[str]]


@dataclass(frozen=True)
class Client:
    """produce(bootstrap, topic, codec, values) and consume(bootstrap, topic, group, count) of one client."""

    name: str
    produce: Produce
    consume: Consume


def _confluent_produce(bootstrap: str, topic: str, codec: str, values: Sequence[str]) -> None:
    errors: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: errors.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0
    assert not errors, errors


def _confluent_consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[str] = []

    def are_there() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value().decode())
        return len(values) == count

    until(are_there, f"{count} records of {topic}", lambda: values, every_s=0)
    try:
        consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        # Its automatic commit, every five seconds, may just have been faster.
        if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
            raise
    consumer.close()
    return values


def _aiokafka_produce(bootstrap: str, topic: str, codec: str, values: Sequence[str]) -> None:
    async def send() -> None:
        compression = None if codec == "none" else codec
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=50)
        async with producer:
            futures = [await producer.send(topic, value.encode()) for value in values]
            await asyncio.gather(*futures)

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))


def _aiokafka_consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    async def receive() -> list[str]:
        values: list[str] = []
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        async with consumer:
            while len(values) < count:
                values.append((await consumer.getone()).value.decode())
            await consumer.commit()
        return values

    return asyncio.run(asyncio.wait_for(receive(), PATIENCE_S))


def _kafka_python_produce(bootstrap: str, topic: str, codec: str, values: Sequence[str]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50
    )
    futures = [producer.send(topic, value.encode()) for value in values]
    producer.flush(PATIENCE_S)
    for future in futures:
        future.get(PATIENCE_S)
    producer.close()


def _kafka_python_consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_MS,
    )
    values: list[str] = []
    for message in consumer:
        values.append(message.value.decode())
        if len(values) == count:
            break
    consumer.commit()
    consumer.close()
    return values


def _kcat_produce(bootstrap: str, topic: str, codec: str, values: Sequence[str]) -> None:
    subprocess.run(
        ["kcat", "-b", bootstrap, "-P", "-t", topic, "-z", codec, "-X", "linger.ms=50"],
        input="\n".join(values),
        text=True,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )


def _kcat_consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, "-G", group, "-X", "auto.offset.reset=earliest", "-c", str(count), topic],
        text=True,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.splitlines()


def _java_produce(bootstrap: str, topic: str, codec: str, values: Sequence[str]) -> None:
    # Of the console producer's settings only those asked for are set: it is idempotent, as Java's producers are.
    java_tools.run(
        "ConsoleProducer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--compression-codec",
        codec,
        "--command-property",
        "linger.ms=50",
        stdin="\n".join(values) + "\n",
    )


def _java_consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    output = java_tools.run(
        "consumer.ConsoleConsumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        str(count),
        "--timeout-ms",
        str(PATIENCE_MS),
        with_errors=False,
    )
    return [line for line in output.splitlines() if not line.startswith("The consumer rebalance protocol")]


CONFLUENT = Client("confluent", _confluent_produce, _confluent_consume)
AIOKAFKA = Client("aiokafka", _aiokafka_produce, _aiokafka_consume)
KAFKA_PYTHON = Client("kafka-python", _kafka_python_produce, _kafka_python_consume)
KCAT = Client("kcat", _kcat_produce, _kcat_consume)
JAVA = Client("java", _java_produce, _java_consume)
