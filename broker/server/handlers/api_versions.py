"""ApiVersions: what this listener offers, asked first on every connection."""

import re
from typing import Final

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrameError
from broker.protocol.frames import Frame
from broker.protocol.wire_format import read_unsigned_varint
from broker.server.api_registry import handles_frames
from broker.server.api_version_manager import ApiVersionManager
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot

VERSIONS: Final = range(5)
FIRST_WITH_SOFTWARE_NAME: Final = 3
ALLOWED_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # ApiVersionsRequest.isValid


@handles_frames(ApiKey.API_VERSIONS, versions=VERSIONS, accepts_unlisted_versions=True)
def api_versions(frame: Frame, context: RequestContext, slot: ResponseSlot, manager: ApiVersionManager) -> None:
    """ApiVersions: the keys and versions of this listener, and the cluster's features.

    Behaviour: the answer is made once per version and change of features and then sent as it is.  Its header is of
      version 0 in every version.  A version that is not offered is answered with a body of version 0, error
      UNSUPPORTED_VERSION and the one entry of this key, and the connection stays open (KIP-511).  A software name or
      version outside `[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?` is INVALID_REQUEST.  What the controller does is
      offered only in the versions the leading controller offers, too.
    Versions:  3 client software name and version, features · 4 features with minimum 0 are no longer left out.
    Left out:  5 (cluster and node id, KIP-1242) takes the road of the unknown version.
    """
    if frame.version not in VERSIONS:
        slot.count_error(ErrorCode.unsupported_version)
        slot.send(manager.unsupported_version(frame.correlation_id))
        return
    if frame.version >= FIRST_WITH_SOFTWARE_NAME:
        name, position = _compact_text(frame.buffer, frame.body_position)
        version, _ = _compact_text(frame.buffer, position)
        if not (ALLOWED_SOFTWARE.fullmatch(name) and ALLOWED_SOFTWARE.fullmatch(version)):
            slot.count_error(ErrorCode.invalid_request)
            slot.send(manager.invalid_request(frame.version, frame.correlation_id))
            return
        context.client_software_name, context.client_software_version = name, version
    slot.send(manager.response(frame.version, frame.correlation_id))


def _compact_text(buffer: Buffer, position: int) -> tuple[str, int]:
    size, position = read_unsigned_varint(buffer, position)
    end = position + size - 1
    if size == 0 or end > len(buffer):
        raise MalformedFrameError(f"a software name of {size - 1} bytes at {position} in a frame of {len(buffer)}")
    return str(buffer[position:end], "utf-8", "replace"), end
