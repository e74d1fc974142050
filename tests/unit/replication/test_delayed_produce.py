from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.delayed_produce import DelayedProduce
from broker.replication.produce_result import PartitionProduceResult


def operation_of(count: int) -> tuple[DelayedProduce, list[PartitionProduceResult], list[object], list[object]]:
    results = [PartitionProduceResult(TopicPartition("t", index), base_offset=index) for index in range(count)]
    answered: list[object] = []
    settled: list[object] = []
    return DelayedProduce(results, range(count), answered.append, settled.append), results, answered, settled


def test_it_is_settled_when_every_partition_is() -> None:
    operation, results, answered, settled = operation_of(2)
    operation.on_partition_done(1, ErrorCode.none)
    assert not operation.try_complete()
    operation.on_partition_done(1, ErrorCode.not_leader_or_follower)  # too late: the first word counts
    operation.on_partition_done(0, ErrorCode.not_enough_replicas_after_append)
    assert operation.try_complete()
    assert settled == [operation]
    operation.on_complete(expired=False)
    assert answered == [results]
    assert [result.error for result in results] == [ErrorCode.not_enough_replicas_after_append, ErrorCode.none]


def test_at_the_deadline_the_others_time_out_and_keep_their_offsets() -> None:
    operation, results, answered, _ = operation_of(2)
    operation.on_partition_done(0, ErrorCode.none)
    operation.on_complete(expired=True)
    assert [(result.error, result.base_offset) for result in results] == [
        (ErrorCode.none, 0),
        (ErrorCode.request_timed_out, 1),
    ]
    assert answered == [results]
