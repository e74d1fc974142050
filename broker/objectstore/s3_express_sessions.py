"""ExpressSessions: sessions of S3 Express, made anew before they end and forgotten when they are refused.

The library makes a session with the first request and again when 45 of its 300 seconds are left, in the way of one
request.  A session the store refuses it keeps until then.  Both are helped here, through attributes of the library
that are not public: aiobotocore is pinned, and the contract tests revoke sessions.
"""

import asyncio
from typing import Any, Final

import structlog
from aiobotocore.utils import AioIdentityCache

from broker.objectstore.errors import Unavailable
from broker.objectstore.s3_errors import FAILURES

log = structlog.get_logger(__name__)

REFRESH_SECONDS: Final = 200


class ExpressSessions:
    """The library's session for one directory bucket."""

    def __init__(self, client: Any, bucket: str, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self._bucket = bucket
        self._refresh_seconds = refresh_seconds
        self._cache: Any = _identity_cache(client)
        self._used = False

    def current(self) -> Any:
        """A mark of the session in use; None before there is one."""
        self._used = True
        return self._cache._credentials.get(self._bucket)

    def forget(self, session: Any) -> None:
        """The store refused this session; one that another request made meanwhile stays."""
        if self._cache._credentials.get(self._bucket) is session:
            self._cache._credentials.pop(self._bucket, None)

    async def keep_fresh(self) -> None:
        """For ever: replaces the session when it was used since the last look.  An idle bucket is asked nothing."""
        while True:
            await asyncio.sleep(self._refresh_seconds)
            if self._used:
                self._used = False
                await self._refresh()

    async def _refresh(self) -> None:
        try:
            # The cache's base class makes a session and keeps nothing; requests go on with the old one meanwhile.
            session = await AioIdentityCache.get_credentials(self._cache, bucket=self._bucket)
        except (*FAILURES, KeyError) as error:
            log.warning("express_session_not_refreshed", bucket=self._bucket, error=str(error))
            return
        self._cache._credentials[self._bucket] = session


def _identity_cache(client: Any) -> Any:
    for handler in client.meta.events._emitter._handlers.prefix_search("before-sign.s3"):
        cache = getattr(getattr(handler, "__self__", None), "_cache", None)
        if hasattr(cache, "_credentials"):
            return cache
    raise Unavailable("this version of aiobotocore keeps its S3 Express sessions elsewhere")
