"""DeleteTopics: answered by the controller."""

from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward_and_see
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext

FIRST_VERSION_WITH_TOPIC_IDS = 6


@handles(ApiKey.DELETE_TOPICS, versions=range(1, 7), is_forwarded=True)
async def delete_topics(
    request: Request, context: RequestContext, forwarding: ForwardingManager, cache: MetadataCache
) -> ForwardedResponse:
    """DeleteTopics: delete by name or id.

    Behaviour: the controller removes the topics at once; replicas delete their logs after `file.delete.delay.ms`.
      `delete.topic.enable=false` answers TOPIC_DELETION_DISABLED.  The answer waits a moment until this broker's image
      has lost them.
    Versions:  5 messages · 6 by topic id.
    Left out:  controller mutation quotas.
    """
    topics = cache.image.topics
    if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        asked = [
            topics.topic_by_id(state.topic_id) if state.name is None else topics.topic(state.name)
            for state in request.body.topics
        ]
    else:
        asked = [topics.topic(name) for name in request.body.topic_names]
    ids = [topic.id for topic in asked if topic is not None]

    def have_gone(image: MetadataImage) -> bool:
        return not any(topic_id in image.topics.by_id for topic_id in ids)

    return await forward_and_see(request, context, forwarding, cache, have_gone)
