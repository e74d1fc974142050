"""The one function behind every request that the controller answers for us (KIP-590).

The client's bytes travel unchanged inside an Envelope, and the controller's answer comes back to the client unchanged.
"""

from collections.abc import Callable
from typing import Final

from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.error_counts import error_counts
from broker.protocol.requests import Request, decode_response
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.image_waiter import wait_for_image
from broker.server.request_context import RequestContext

SEE_WAIT_MS: Final = 500


async def forward(request: Request, context: RequestContext, forwarding: ForwardingManager) -> ForwardedResponse:
    """The controller's answer to the client's own frame."""
    return await forwarding.forward(request, context)


async def forward_and_see(
    request: Request,
    context: RequestContext,
    forwarding: ForwardingManager,
    cache: MetadataCache,
    is_visible: Callable[[MetadataImage], bool],
) -> ForwardedResponse:
    """The same, held back for a moment until this broker's own image shows what a fully successful change did.

    Kafka answers at once and leaves it to clients to ask again; the one who asks the same broker next need not.
    """
    response = await forward(request, context, forwarding)
    if not is_visible(cache.image) and _is_success(request, response):
        await wait_for_image(cache, is_visible, SEE_WAIT_MS)
    return response


def _is_success(request: Request, response: ForwardedResponse) -> bool:
    _, entity = decode_response(request.api_key, request.version, response)
    return not error_counts(entity)
