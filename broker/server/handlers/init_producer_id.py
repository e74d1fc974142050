"""InitProducerId: an id for an idempotent producer (KIP-98)."""

from typing import Any

from broker.common.errors import ErrorCode, InvalidRequestError, KafkaError
from broker.common.identifiers import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.producer_id_manager import ProducerIdManager
from broker.server.request_context import RequestContext

TRANSACTIONS_UNSUPPORTED = "This broker has no transaction coordinator: transactional.id cannot be used."


def init_producer_id_error(request: Request, error: KafkaError) -> Any:
    return request.schema.InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=error.code,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )


@handles(ApiKey.INIT_PRODUCER_ID, versions=range(6), on_error=init_producer_id_error)
async def init_producer_id(request: Request, context: RequestContext, producer_ids: ProducerIdManager) -> Any:
    """InitProducerId: a fresh producer id with epoch 0 for producers without a transactional id.

    Behaviour: ids come from blocks of the controller and are never given twice in the life of a cluster.  While no
      block is there the answer is COORDINATOR_LOAD_IN_PROGRESS, which clients retry.  A transactional id is answered
      with INVALID_REQUEST; clients have given up at FindCoordinator before.
    Versions:  2 flexible · 3 the producer's own id and epoch, which only matter with a transactional id ·
      4 PRODUCER_FENCED · 5 errors of KIP-890.
    Left out:  transactional ids; version 6 (two-phase commit) is unstable in Kafka.
    """
    transactional_id = request.body.transactional_id
    if transactional_id is not None:
        raise InvalidRequestError(TRANSACTIONS_UNSUPPORTED)
    producer_id = await producer_ids.generate_producer_id()
    return request.schema.InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=0
    )
