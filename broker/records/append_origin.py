"""Who is appending: it decides which checks a batch must pass (Kafka: AppendOrigin)."""

from enum import Enum


class AppendOrigin(Enum):
    CLIENT = "client"  # a produce request: everything is checked
    COORDINATOR = "coordinator"  # our own coordinators: offsets, control flag and sequences are not checked
    REPLICATION = "replication"  # a follower copying its leader: bytes are kept as they are
    RAFT_LEADER = "raft_leader"  # the metadata quorum: offsets are already assigned
