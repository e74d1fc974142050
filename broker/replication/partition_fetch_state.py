"""How far a follower has fetched one partition (Kafka's PartitionFetchState)."""

from typing import Final

from broker.common.identifiers import NO_EPOCH, TopicPartition
from broker.replication.follower_replica import FollowerReplica
from broker.replication.leader_endpoint import FollowerFetch
from broker.replication.remote_log import RemoteLogState

FIRST_RETRY_SECONDS: Final = 0.05  # a leader is seldom further behind the metadata than that


class PartitionFetchState:
    """Belongs to one fetcher and one leader epoch.  Times are those of the loop, in seconds.

    Every answer is matched with the request object it belongs to; whatever moves the state makes another one, so what
    was asked before the move finds nobody.
    """

    __slots__ = (
        "_delayed_until",
        "_patience",
        "_request",
        "fetch_offset",
        "is_resetting",
        "is_truncating",
        "lag",
        "last_fetched_epoch",
        "refused_in_range_at",
        "replica",
        "topic_partition",
    )

    def __init__(self, replica: FollowerReplica) -> None:
        """StorageFailure or NotLeaderOrFollowerError when there is no log to append to."""
        self.replica = replica
        self.topic_partition: TopicPartition = replica.partition.topic_partition
        self.lag: int | None = None  # records behind the leader's high watermark; None before the first answer
        self.refused_in_range_at: int | None = None  # asked there, out of range by the leader, yet within its range
        self.is_resetting = False  # the leader does not have our offset, and where to go is being found out
        self._delayed_until = 0.0
        self._patience = FIRST_RETRY_SECONDS
        self._request: FollowerFetch | None = None
        log = replica.log
        latest = log.latest_epoch
        # Without epochs divergence cannot be found out: only what is committed may stay.
        self.is_truncating = latest is None
        self.fetch_offset = log.high_watermark if latest is None else log.log_end_offset
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest

    @property
    def leader_epoch(self) -> int:
        return self.replica.leader_epoch

    @property
    def delayed_until(self) -> float:
        return self._delayed_until

    @property
    def is_in_sync(self) -> bool:
        """Whether the last answer left nothing to fetch, as far as committed records go."""
        return self.lag == 0

    def is_ready(self, now: float) -> bool:
        return not (self.is_truncating or self.is_resetting) and self._delayed_until <= now

    def request(self, max_bytes: int) -> FollowerFetch:
        """What to ask now; the same object until something moves.  StorageFailure, NotLeaderOrFollowerError."""
        request = self._request
        log_start_offset = self.replica.log.log_start_offset
        if request is None or request.log_start_offset != log_start_offset or request.max_bytes != max_bytes:
            request = self._request = FollowerFetch(
                topic_id=self.replica.partition.topic_id,
                fetch_offset=self.fetch_offset,
                log_start_offset=log_start_offset,
                leader_epoch=self.leader_epoch,
                last_fetched_epoch=self.last_fetched_epoch,
                max_bytes=max_bytes,
            )
        return request

    def awaits(self, request: FollowerFetch) -> bool:
        """Whether an answer to `request` still means what it meant when it was asked."""
        return self._request is request and not self.is_truncating and self.replica.is_valid

    def continue_at_end(self) -> None:
        """The log changed: fetch at its end, wherever that is, with the newest epoch it has."""
        log = self.replica.log
        latest = log.latest_epoch
        self.fetch_offset = log.log_end_offset
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest
        self.is_truncating = False
        self._patience = FIRST_RETRY_SECONDS
        self.refused_in_range_at = None
        self._request = None

    def truncate_to(self, offset: int) -> None:
        """Cut the log there or, within a batch, where that begins; go on at its end.  StorageFailure."""
        self.replica.truncate_to(offset)
        self.continue_at_end()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything, begin at `offset` and go on there.  StorageFailure."""
        self.replica.truncate_fully_and_start_at(offset)
        self.continue_at_end()

    def restore_from_remote(self, found: RemoteLogState, log_start_offset: int) -> None:
        """Drop everything and go on behind what is in remote storage, with the leader's log start.  StorageFailure."""
        self.replica.restore_from_remote(found, log_start_offset)
        self.continue_at_end()

    def begin_reset(self) -> None:
        """The leader does not have our offset: nothing but the fetcher may move the log until `end_reset`, and nothing
        is asked for.  See `BucketFetchState`."""
        self.is_resetting = True

    def end_reset(self) -> None:
        """The fetcher is done."""
        self.is_resetting = False

    def stop(self) -> None:
        """No longer followed by this state: an answer still under way is void."""
        self._request = None

    def delay(self, now: float, seconds: float) -> None:
        """Leave the partition out for a while; one that waits already waits no longer."""
        if self._delayed_until <= now:
            self._delayed_until = now + seconds

    def delay_briefly(self, now: float, seconds_max: float) -> None:
        """Leave it out for less, at first: the leader is about to learn what we know, or we what it knows."""
        self.delay(now, min(self._patience, seconds_max))
        self._patience = min(2 * self._patience, seconds_max)
