"""RemoteReads: which partitions of one fetch are read from remote storage (KIP-405)."""

from typing import Final

from broker.replication.fetch_params import FetchPartition, FetchPartitionResult
from broker.replication.remote_log import RemoteLog

# At once, for one fetch: each waits for a bucket, so one after the other would be slow; and one client must not take
# all the readers.  Kafka before 4.2 reads one.
REMOTE_READS_MAX: Final = 8


class RemoteReads:
    """Filled while a fetch is located, in the order of its partitions.

    While the quota is exceeded nothing is read: the partitions are `held_back`, and what happens to them is no reason
    to answer (Kafka: UNKNOWN_OFFSET_METADATA), so that the client does not ask again at once.
    """

    __slots__ = ("_is_quota_exceeded", "held_back", "results")

    def __init__(self, remote_log: RemoteLog) -> None:
        self._is_quota_exceeded = remote_log.is_fetch_quota_exceeded
        self.results: list[FetchPartitionResult] = []
        self.held_back: set[FetchPartition] = set()

    def admit(self, result: FetchPartitionResult) -> int:
        """Have it read if there is room for it, else it stays empty and the client comes back.

        Returns what it may add to the answer.  Of the remote partitions the first alone may exceed its limit (KIP-74).
        """
        fetch = result.remote_fetch
        assert fetch is not None, result
        result.remote_fetch = None
        if self._is_quota_exceeded:
            self.held_back.add(result.request)
            return 0
        min_one_message = fetch.min_one_message and not self.results
        if len(self.results) == REMOTE_READS_MAX or not (fetch.size_max > 0 or min_one_message):
            return 0
        result.remote_fetch = fetch._replace(min_one_message=min_one_message)
        self.results.append(result)
        return fetch.size_max
