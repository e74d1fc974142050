"""What `wherry wal` does with the arguments that `wal` has read."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from broker.cli.wal_bucket import BucketPlace, WalBucket, bucket_url
from broker.cli.wal_listing import list_objects, show_object
from broker.cli.wal_logs import PartitionLogs
from broker.cli.wal_pointers import WalPointers
from broker.cli.wal_topic import ClusterView, WalTopicReader
from broker.cli.wal_verification import VerificationCounts, VerificationLimits, WalVerification
from broker.common.clock import Clock, SystemClock
from broker.common.metadata_topic import MetadataTopicError
from broker.config.setting import ConfigError
from broker.config.value_types import HostPort, parse_host_port, parse_list
from broker.objectstore.errors import ObjectStoreError
from broker.objectstore.s3_settings import S3Settings

EXIT_PROBLEMS: Final = 1
EXIT_UNABLE: Final = 2  # it could not be looked

Look = Callable[[argparse.Namespace, WalBucket, Clock], Awaitable[int]]


def run(look: str, arguments: argparse.Namespace) -> int:
    place = BucketPlace(
        bucket_url(arguments.bucket),
        arguments.key_prefix,
        S3Settings(endpoint_url=arguments.endpoint_url, region=arguments.region, path_style=arguments.path_style),
    )
    try:
        return asyncio.run(_run(LOOKS[look], arguments, place))
    except (ObjectStoreError, MetadataTopicError) as error:
        print(f"wherry: {error}", file=sys.stderr)
        return EXIT_UNABLE


async def _run(look: Look, arguments: argparse.Namespace, place: BucketPlace) -> int:
    async with WalBucket.opened(place) as bucket:
        return await look(arguments, bucket, SystemClock())


async def _ls(arguments: argparse.Namespace, bucket: WalBucket, clock: Clock) -> int:
    async for line in list_objects(bucket, clock.now_ms(), with_slices=not arguments.no_slices):
        print(line)
    return 0


async def _show(arguments: argparse.Namespace, bucket: WalBucket, clock: Clock) -> int:
    lines, is_whole = await show_object(bucket, arguments.key)
    for line in lines:
        print(line)
    return 0 if is_whole else EXIT_PROBLEMS


async def _verify(arguments: argparse.Namespace, bucket: WalBucket, clock: Clock) -> int:
    servers = _servers(arguments.bootstrap_server)
    verification = WalVerification(
        bucket,
        VerificationLimits(clock.now_ms(), arguments.orphan_age * 1000, arguments.min_life * 1000),
        read_pointers=None if servers is None else partial(_read_pointers, servers),
        logs=PartitionLogs(arguments.log_dir) if arguments.log_dir else None,
    )
    problems = 0
    async for finding in verification.findings():
        problems += 1
        print(finding)
    if not arguments.quiet:
        print(summary(verification.counts, problems, with_pointers=servers is not None, with_logs=arguments.log_dir))
    return EXIT_PROBLEMS if problems else 0


async def _read_pointers(servers: tuple[HostPort, ...]) -> tuple[ClusterView, WalPointers]:
    pointers = WalPointers()
    async with WalTopicReader(servers).running() as reader:
        await reader.read_all(pointers.add)
        return await reader.cluster(), pointers  # asked for last: topics that were created meanwhile count


def _servers(text: str | None) -> tuple[HostPort, ...] | None:
    if text is None:
        return None
    try:
        return tuple(parse_host_port(part) for part in parse_list(text))
    except ValueError as error:
        raise ConfigError(f"--bootstrap-server: {error}.") from error


def summary(counts: VerificationCounts, problems: int, *, with_pointers: bool, with_logs: object) -> str:
    """The last line: what was looked at, and what was no problem though it was not there."""
    parts = [f"{counts.objects} objects, {counts.slices} slices, {counts.bytes_read} bytes"]
    if with_pointers:
        parts.append(f"{counts.pending} not yet announced, {counts.expired} pointers to objects that have expired")
    if counts.gone:
        parts.append(f"{counts.gone} deleted meanwhile")
    if with_logs:
        parts.append(
            f"batches in logs: {counts.equal_batches} equal, {counts.superseded_batches} superseded, "
            f"{counts.absent_batches} absent"
        )
    return f"{'; '.join(parts)}; {problems} problems"


LOOKS: Final[Mapping[str, Look]] = {"ls": _ls, "show": _show, "verify": _verify}
