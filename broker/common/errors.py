"""Errors a client can be told: each class carries the protocol's code for it.

Per request an error is an exception, per partition it is a value (`ErrorCode`).  `StorageFailure` is the other
kind, the world failing under us.  A broken invariant is neither: it is an `assert`, and it halts the broker.
"""

from typing import ClassVar, Final

from kio.schema.errors import ErrorCode

__all__ = ["NO_ERROR", "ErrorCode", "KafkaError", "StorageFailure"]

NO_ERROR: Final = ErrorCode.none  # Python 3.11 takes 0.1 us to look a member of an enum up, which hot paths avoid


class KafkaError(Exception):
    """A request cannot be done, and the protocol has a code for why."""

    code: ClassVar[ErrorCode] = ErrorCode.unknown_server_error

    @property
    def message(self) -> str | None:
        """The text for answers that have room for one; None when the exception was raised without any."""
        return str(self.args[0]) if self.args else None


class StorageFailure(KafkaError):
    """The disk refused: nothing was acknowledged, and what was half-written is never served."""

    code = ErrorCode.kafka_storage_error


class OffsetOutOfRangeError(KafkaError):
    code = ErrorCode.offset_out_of_range


class OffsetMovedToTieredStorageError(KafkaError):
    """The offset belongs to the log, and its records are no longer on this disk (KIP-405)."""

    code = ErrorCode.offset_moved_to_tiered_storage


class CorruptMessageError(KafkaError):
    code = ErrorCode.corrupt_message


class UnknownTopicOrPartitionError(KafkaError):
    code = ErrorCode.unknown_topic_or_partition


class LeaderNotAvailableError(KafkaError):
    code = ErrorCode.leader_not_available


class NotLeaderOrFollowerError(KafkaError):
    code = ErrorCode.not_leader_or_follower


class RequestTimedOutError(KafkaError):
    code = ErrorCode.request_timed_out


class ReplicaNotAvailableError(KafkaError):
    code = ErrorCode.replica_not_available


class MessageTooLargeError(KafkaError):
    code = ErrorCode.message_too_large


class CoordinatorLoadInProgressError(KafkaError):
    code = ErrorCode.coordinator_load_in_progress


class CoordinatorNotAvailableError(KafkaError):
    code = ErrorCode.coordinator_not_available


class NotCoordinatorError(KafkaError):
    code = ErrorCode.not_coordinator


class InvalidTopicError(KafkaError):
    code = ErrorCode.invalid_topic_exception


class RecordListTooLargeError(KafkaError):
    code = ErrorCode.record_list_too_large


class NotEnoughReplicasError(KafkaError):
    code = ErrorCode.not_enough_replicas


class NotEnoughReplicasAfterAppendError(KafkaError):
    code = ErrorCode.not_enough_replicas_after_append


class IllegalGenerationError(KafkaError):
    code = ErrorCode.illegal_generation


class InconsistentGroupProtocolError(KafkaError):
    code = ErrorCode.inconsistent_group_protocol


class InvalidGroupIdError(KafkaError):
    code = ErrorCode.invalid_group_id


class UnknownMemberIdError(KafkaError):
    code = ErrorCode.unknown_member_id


class InvalidSessionTimeoutError(KafkaError):
    code = ErrorCode.invalid_session_timeout


class RebalanceInProgressError(KafkaError):
    code = ErrorCode.rebalance_in_progress


class InvalidTimestampError(KafkaError):
    code = ErrorCode.invalid_timestamp


class UnsupportedVersionError(KafkaError):
    code = ErrorCode.unsupported_version


class TopicAlreadyExistsError(KafkaError):
    code = ErrorCode.topic_already_exists


class InvalidPartitionsError(KafkaError):
    code = ErrorCode.invalid_partitions


class InvalidReplicationFactorError(KafkaError):
    code = ErrorCode.invalid_replication_factor


class InvalidReplicaAssignmentError(KafkaError):
    code = ErrorCode.invalid_replica_assignment


class InvalidConfigError(KafkaError):
    code = ErrorCode.invalid_config


class NotControllerError(KafkaError):
    code = ErrorCode.not_controller


class InvalidRequestError(KafkaError):
    code = ErrorCode.invalid_request


class PolicyViolationError(KafkaError):
    code = ErrorCode.policy_violation


class OutOfOrderSequenceNumberError(KafkaError):
    code = ErrorCode.out_of_order_sequence_number


class InvalidProducerEpochError(KafkaError):
    code = ErrorCode.invalid_producer_epoch


class InvalidTxnStateError(KafkaError):
    code = ErrorCode.invalid_txn_state


class TransactionCoordinatorFencedError(KafkaError):
    code = ErrorCode.transaction_coordinator_fenced


class NonEmptyGroupError(KafkaError):
    code = ErrorCode.non_empty_group


class GroupIdNotFoundError(KafkaError):
    code = ErrorCode.group_id_not_found


class FencedLeaderEpochError(KafkaError):
    code = ErrorCode.fenced_leader_epoch


class UnknownLeaderEpochError(KafkaError):
    code = ErrorCode.unknown_leader_epoch


class UnsupportedCompressionTypeError(KafkaError):
    code = ErrorCode.unsupported_compression_type


class StaleBrokerEpochError(KafkaError):
    code = ErrorCode.stale_broker_epoch


class OffsetNotAvailableError(KafkaError):
    code = ErrorCode.offset_not_available


class GroupMaxSizeReachedError(KafkaError):
    code = ErrorCode.group_max_size_reached


class FencedInstanceIdError(KafkaError):
    code = ErrorCode.fenced_instance_id


class InvalidRecordError(KafkaError):
    code = ErrorCode.invalid_record


class InvalidUpdateVersionError(KafkaError):
    code = ErrorCode.invalid_update_version


class UnknownTopicIdError(KafkaError):
    code = ErrorCode.unknown_topic_id


class DuplicateBrokerRegistrationError(KafkaError):
    code = ErrorCode.duplicate_broker_registration


class BrokerIdNotRegisteredError(KafkaError):
    code = ErrorCode.broker_id_not_registered


class InconsistentTopicIdError(KafkaError):
    code = ErrorCode.inconsistent_topic_id


class InconsistentClusterIdError(KafkaError):
    code = ErrorCode.inconsistent_cluster_id


class InvalidRegistrationError(KafkaError):
    code = ErrorCode.invalid_registration
