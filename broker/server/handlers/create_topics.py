"""CreateTopics: answered by the controller."""

from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward_and_see
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.CREATE_TOPICS, versions=range(2, 8), is_forwarded=True)
async def create_topics(
    request: Request, context: RequestContext, forwarding: ForwardingManager, cache: MetadataCache
) -> ForwardedResponse:
    """CreateTopics: topics with placement by the controller or by hand.

    Behaviour: the controller checks names, counts, replicas and settings per topic, and creates all that are valid.
      The answer waits a moment until this broker's image shows the new topics, so that a Metadata request on the same
      connection finds them; other brokers may lag behind, and clients ask again.
    Versions:  4 default partition count and replication factor (-1) · 5 settings and counts in the answer ·
      7 topic ids.
    Left out:  controller mutation quotas.
    """
    names = () if request.body.validate_only else tuple(topic.name for topic in request.body.topics)
    return await forward_and_see(
        request, context, forwarding, cache, lambda image: all(image.topics.topic(name) for name in names)
    )
