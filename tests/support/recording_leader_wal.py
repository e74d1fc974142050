"""The path through a bucket of a partition that is led, as a test decides it."""

from broker.replication.leader_wal import LeaderWal


class RecordingLeaderWal(LeaderWal):
    """Followers in `falls_back` are to get records; everything told is written down."""

    def __init__(self) -> None:
        self.falls_back: set[int] = set()
        self.appended_bytes: list[int] = []
        self.awaited_count = 0
        self.asked: list[tuple[int, int]] = []  # replica and fetch offset
        self.fallback_bytes: dict[int, int] = {}
        self.log_start_moves = 0

    def appended(self, size_bytes: int) -> None:
        self.appended_bytes.append(size_bytes)

    def awaited(self) -> None:
        self.awaited_count += 1

    def serves_records(self, replica_id: int, fetch_offset: int) -> bool:
        self.asked.append((replica_id, fetch_offset))
        return replica_id in self.falls_back

    def count_fallback(self, replica_id: int, size_bytes: int) -> None:
        self.fallback_bytes[replica_id] = self.fallback_bytes.get(replica_id, 0) + size_bytes

    def log_start_moved(self) -> None:
        self.log_start_moves += 1
