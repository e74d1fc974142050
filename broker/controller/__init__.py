"""The embedded KRaft controller: a quorum of one that speaks and stores what Apache Kafka's controllers do.

Every change is a command: it is validated against the state, becomes records, the records are applied and appended,
and its answer waits until they are on the disk.
"""
