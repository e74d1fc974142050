"""The port through which a follower asks its leader about leader epochs."""

from typing import Protocol

from broker.common.identifiers import TopicPartition
from broker.log.leader_epoch_file_cache import EpochEndOffset


class LeaderEpochs(Protocol):
    """OffsetsForLeaderEpoch to the leaders of this broker's followers.

    Never over the connection of a fetch session: there a fetch may be parked, and the answer behind it.
    """

    async def end_offset(
        self, leader_id: int, topic_partition: TopicPartition, epoch: int, *, current_leader_epoch: int
    ) -> EpochEndOffset:
        """The newest epoch of the leader's log that is not above `epoch`, and the offset after its last record.

        (-1, -1) when the leader has none.  Only the active leader of exactly `current_leader_epoch` answers.
        LeaderUnavailableError without an answer in time, or KafkaError with the leader's code.
        """
