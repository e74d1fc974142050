"""The port through which the metadata starts and stops fetchers."""

from collections.abc import Iterable
from typing import Protocol

from broker.common.identifiers import TopicPartition
from broker.replication.partition import Partition


class FollowerFetchers(Protocol):
    """Follows leaders for partitions.  All of it is plain: nothing waits, and a stop holds from this moment on."""

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Follow the leader each of them has now, in its epoch; whom they followed before is left."""

    def leave(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Follow nobody for these."""

    def on_brokers_changed(self, broker_ids: Iterable[int]) -> None:
        """These brokers were registered, moved or have gone."""

    def settle(self) -> None:
        """A change of the metadata is through: take over new settings, end the fetchers that follow nothing now."""

    def retry_failed(self) -> None:
        """Try again what a disk had refused."""


class NoFetchers:
    """For brokers that follow nobody, and for tests."""

    def follow(self, partitions: Iterable[Partition]) -> None: ...
    def leave(self, topic_partitions: Iterable[TopicPartition]) -> None: ...
    def on_brokers_changed(self, broker_ids: Iterable[int]) -> None: ...
    def settle(self) -> None: ...
    def retry_failed(self) -> None: ...
