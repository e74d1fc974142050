"""CreateTopics on a controller: topics with their configs and replicas."""

from typing import Any

from broker.controller.controller import Controller
from broker.controller.topic_control_manager import CreatableTopic, CreateTopicResult
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.CREATE_TOPICS, versions=range(2, 8))
async def create_topics(request: Request, context: RequestContext, controller: Controller) -> Any:
    """CreateTopics: each topic by itself; those that pass are created together.

    Behaviour: -1 partitions or replicas take the defaults of the controller's own settings.  Replicas are spread over
      racks, leaders over brokers.  Bad names and collisions of `.` and `_` are INVALID_TOPIC_EXCEPTION, more replicas
      than brokers INVALID_REPLICATION_FACTOR, wrong configs INVALID_CONFIG with a sentence, a batch of more than
      10,000 records POLICY_VIOLATION.  The answer comes when the topics are durable.
    Versions:  5 answers configs and numbers · 7 answers topic ids.
    Left out:  quotas of controller mutations; policies.
    """
    body = request.body
    topics = [_topic(topic) for topic in body.topics]
    results = await controller.create_topics(topics, validate_only=body.validate_only)
    return request.schema.CreateTopicsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(_result(request.schema, result) for result in results)
    )


def _topic(topic: Any) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        configs={config.name: config.value for config in topic.configs},
    )


def _result(schema: Any, result: CreateTopicResult) -> Any:
    return schema.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error.code,
        error_message=result.error.message,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=tuple(
            schema.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=int(entry.source),
                is_sensitive=entry.is_sensitive,
            )
            for entry in result.configs
        ),
    )
