"""DeleteTopics on a controller."""

from typing import Any

from broker.common.identifiers import ZERO_UUID
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.DELETE_TOPICS, versions=range(1, 7))
async def delete_topics(request: Request, context: RequestContext, controller: Controller) -> Any:
    """DeleteTopics: by name, or by id.

    Behaviour: an unknown name is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID, a topic that is named
      twice INVALID_REQUEST.  With delete.topic.enable=false everything is TOPIC_DELETION_DISABLED.  With tiered storage
      `__remote_log_metadata` is POLICY_VIOLATION (Kafka deletes it).
    Versions:  5 error messages · 6 topic ids.
    Left out:  quotas of controller mutations.
    """
    body = request.body
    if hasattr(body, "topics"):
        names = [topic.name for topic in body.topics if topic.name is not None]
        topic_ids = [topic.topic_id or ZERO_UUID for topic in body.topics if topic.name is None]
    else:
        names, topic_ids = list(body.topic_names), []
    results = await controller.delete_topics(names, topic_ids)
    schema = request.schema
    return schema.DeleteTopicsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            schema.DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error.code,
                error_message=result.error.message,
            )
            for result in results
        ),
    )
