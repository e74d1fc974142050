"""Which keys objects may have: what S3, S3 Express and a directory take alike."""

import re
from typing import Final

KEY_BYTES_MAX: Final = 1024  # of S3
SEGMENT_BYTES_MAX: Final = 255  # of file systems
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]*")


def check_key(key: str) -> str:
    """The key, or ValueError: ASCII segments between "/", none of them empty or beginning with a dot."""
    segments = key.split("/")
    if len(key) > KEY_BYTES_MAX or any(
        len(segment) > SEGMENT_BYTES_MAX or _SEGMENT.fullmatch(segment) is None for segment in segments
    ):
        raise ValueError(f"{key!r} cannot be the key of an object")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix, or ValueError: empty, or a key followed by "/"."""
    if prefix:
        if not prefix.endswith("/"):
            raise ValueError(f"the prefix {prefix!r} does not end with '/'")
        check_key(prefix[:-1])
    return prefix
