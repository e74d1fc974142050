"""CreatePartitions: answered by the controller."""

from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward_and_see
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.CREATE_PARTITIONS, versions=range(4), is_forwarded=True)
async def create_partitions(
    request: Request, context: RequestContext, forwarding: ForwardingManager, cache: MetadataCache
) -> ForwardedResponse:
    """CreatePartitions: give a topic more partitions.

    Behaviour: partitions can only be added; records of a key may land in another partition afterwards.  The answer
      waits a moment until this broker's image shows them.
    Versions:  0-1 alike · 2 flexible · 3 quota errors.
    Left out:  controller mutation quotas.
    """
    counts = {} if request.body.validate_only else {topic.name: topic.count for topic in request.body.topics}

    def are_visible(image: MetadataImage) -> bool:
        topics = {name: image.topics.topic(name) for name in counts}
        return all(topic is not None and len(topic.partitions) >= counts[name] for name, topic in topics.items())

    return await forward_and_see(request, context, forwarding, cache, are_visible)
