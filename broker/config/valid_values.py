"""What several settings accept alike, in words and as checks."""

import re
from typing import Any, Final

from broker.config.setting import Valid

# The two forms that `objectstore.object_store_url` opens.
_BUCKET_URL: Final = re.compile(r"s3://[^/?#]+/?|file:///[^?#]*")

BUCKET_URL: Final = Valid[Any]("s3://bucket or file:///directory", lambda url: _BUCKET_URL.fullmatch(url) is not None)
HTTP_URL: Final = Valid[Any](
    "http://host:port or https://host:port", lambda url: re.match(r"https?://.", url) is not None
)
NON_EMPTY: Final = Valid[Any]("non-empty string", lambda text: text != "")
