"""ExpressShim: makes a plain S3 server look like S3 Express One Zone to its clients.

For buckets named *--x-s3: CreateSession with a life of one's choice, sessions that can be revoked, prefixes that must
end in "/", no StartAfter, listings in no order, ETags that are no MD5, and no append (which compatible stores take for
an overwrite).  A session's credentials are the caller's own key pair and a token, so the server behind still checks
every signature.  The endpoint must be an IP address.
"""

import datetime
import random
import re
import time
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from broker.objectstore.s3_settings import is_directory_bucket
from tests.support.s3_proxy import Reply, S3Proxy, error_answer

_SESSION = """<?xml version="1.0" encoding="UTF-8"?>
<CreateSessionResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Credentials>
<SessionToken>{token}</SessionToken><AccessKeyId>{access_key}</AccessKeyId>
<SecretAccessKey>{secret_key}</SecretAccessKey><Expiration>{expiration}</Expiration>
</Credentials></CreateSessionResult>"""

_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_ETAG_MARK = "express-"


class ExpressShim(S3Proxy):
    """`sessions_created` and `sessions_refused` tell what happened to sessions."""

    def __init__(
        self, upstream: str, access_key: str, secret_key: str, life_seconds: float = 300, seed: int = 1
    ) -> None:
        super().__init__(upstream)
        self._keys = (access_key, secret_key)
        self._life_seconds = life_seconds
        self._random = random.Random(seed)
        self._expiries: dict[str, float] = {}
        self.sessions_created = 0
        self.sessions_refused = 0
        self.requests_with_session = 0

    def revoke_sessions(self) -> None:
        """Every token becomes invalid at once."""
        self._expiries.clear()

    def expire_sessions(self) -> None:
        """Every session is over before its time."""
        self._expiries = dict.fromkeys(self._expiries, 0.0)

    def refusal(self, request: web.Request) -> web.Response | None:
        parts = urlsplit(request.raw_path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        if not is_directory_bucket(bucket):
            return None
        query = parse_qs(parts.query, keep_blank_values=True)
        if request.method == "GET" and "session" in query:
            return self._create_session()
        needs_session = key or "list-type" in query or "delete" in query
        refused = self._check_session(request) if needs_session else None
        return refused or _check_rules(request, query)

    def _create_session(self) -> web.Response:
        self.sessions_created += 1
        token = f"session-{self.sessions_created}"
        self._expiries[token] = time.time() + self._life_seconds
        moment = datetime.datetime.fromtimestamp(self._expiries[token], datetime.UTC)
        access_key, secret_key = self._keys
        text = _SESSION.format(
            token=token, access_key=access_key, secret_key=secret_key, expiration=f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        )
        return web.Response(text=text, content_type="application/xml")

    def _check_session(self, request: web.Request) -> web.Response | None:
        token = request.headers.get("x-amz-s3session-token")
        if token is None:
            return error_answer(403, "AccessDenied", "data is reached with a session")
        if token not in self._expiries:
            self.sessions_refused += 1
            return error_answer(400, "InvalidToken", "The provided token is malformed or otherwise invalid.")
        if self._expiries[token] < time.time():
            self.sessions_refused += 1
            return error_answer(400, "ExpiredToken", "The provided token has expired.")
        self.requests_with_session += 1
        return None

    async def forward(self, request: web.Request, body: bytes) -> Reply:
        """ETags are marked on the way out, and the marks removed on the way in."""
        if request.method == "POST":
            body = body.replace(_ETAG_MARK.encode(), b"")
        reply = await super().forward(request, body)
        if etag := reply.headers.get("ETag"):
            reply.headers["ETag"] = f'"{_ETAG_MARK}{etag.strip(chr(34))}"'
        if b"<ListBucketResult" in reply.body:
            contents = _CONTENTS.findall(reply.body)
            self._random.shuffle(contents)
            shuffled = iter(contents)
            reply.body = _CONTENTS.sub(lambda _: next(shuffled), reply.body)
        return reply


def _check_rules(request: web.Request, query: dict[str, list[str]]) -> web.Response | None:
    if query.get("list-type") == ["2"]:
        prefix = query.get("prefix", [""])[0]
        if prefix and not prefix.endswith("/"):
            return error_answer(400, "InvalidRequest", "a prefix must end in a delimiter")
        if query.get("delimiter", ["/"])[0] not in ("/", ""):
            return error_answer(400, "InvalidRequest", "the only delimiter is /")
        if "start-after" in query:
            return error_answer(501, "NotImplemented", "StartAfter")
    if "x-amz-write-offset-bytes" in request.headers:
        return error_answer(501, "NotImplemented", "append is not emulated")
    if "versioning" in query or "location" in query:
        return error_answer(501, "NotImplemented", "not on directory buckets")
    return None
