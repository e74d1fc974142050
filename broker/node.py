"""Node: one process, with a broker, a controller, or both halves in it (Kafka's KafkaRaftServer)."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import structlog
import uvloop

from broker import __version__
from broker.broker_server import BrokerServer
from broker.common.chance import Chance
from broker.common.clock import Clock, SystemClock
from broker.common.disk import DiskExecutor, ThreadDiskExecutor
from broker.common.errors import ErrorCode, StorageFailure
from broker.common.file_system import FileLock, FileSystem, OsFileSystem
from broker.common.identifiers import uuid_to_text
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.controller.controller import ControllerStartError
from broker.controller_server import ControllerServer
from broker.metrics.disk_metrics import DiskMetrics
from broker.metrics.event_loop_metrics import EventLoopMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.request_metrics import RequestMetrics
from broker.network.broker_client import BrokerClient
from broker.network.byte_stream import AsyncioNetwork, Network
from broker.objectstore.fault_switch import FaultSwitch, is_loopback
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.broker_identity import BrokerIdentity
from broker.server.broker_lifecycle_manager import BrokerReplacedError, BrokerStartError
from broker.server.controller_finder import Endpoint, InconsistentLeaderError, NodeIdTakenError
from broker.server.disk_reserve import DiskReserve
from broker.server.http_endpoint import HttpEndpoint
from broker.server.meta_properties import MetaProperties, load_or_format, read_meta_properties
from broker.server.metadata_observer import ClusterIdMismatchError
from broker.server.metadata_tail import MetadataDivergedError
from broker.server.outside import Outside
from broker.server.runtime_tuning import gc_freeze, process_age_seconds, trim_heap_regularly, tune_process
from broker.server.web_page.cluster_status import ClusterStatus

log = structlog.get_logger(__name__)

CONTROLLER_ENDPOINT: Final = 2  # DescribeCluster's endpoint type for controllers (KIP-919)
WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::")
CLUSTER_ID_RETRY_SECONDS: Final = 0.5

# The cluster does not want this node, or its quorum is broken: expected, said in one sentence, no traceback.
CLUSTER_ERRORS: Final = (
    BrokerStartError,
    BrokerReplacedError,
    ClusterIdMismatchError,
    InconsistentLeaderError,
    MetadataDivergedError,
    NodeIdTakenError,
)


class NodeError(Exception):
    """Why this node could not start, or had to stop by itself; the message tells an operator."""


class Ending(NamedTuple):
    """How a node ends: `reason` is empty when it was told to."""

    exit_code: int
    reason: str = ""


class Node:
    """Life: construct, `start`, `stop`.  The halves meet only on the network.

    The ports to the outside world are the real ones unless others are given.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        chance: Chance | None = None,
        clock: Clock | None = None,
        file_system: FileSystem | None = None,
        disk: DiskExecutor | None = None,
        network: Network | None = None,
    ) -> None:
        self.config = ConfigHolder(config)
        self.registry = MetricsRegistry()
        DiskMetrics(self.registry).observe(lambda: shutil.disk_usage(self.config.current.log_dir))
        self.chance = chance or Chance()
        self.clock: Clock = clock or SystemClock()
        self.file_system: FileSystem = file_system or OsFileSystem()
        self.disk: DiskExecutor = disk or ThreadDiskExecutor()
        self.network: Network = network or AsyncioNetwork()
        self.request_metrics = RequestMetrics(self.registry)
        self.faults = FaultSwitch(self.chance) if _may_have_faults(config) else None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self.http: HttpEndpoint | None = None
        self._meta: MetaProperties | None = None
        self._cluster: ClusterStatus | None = None
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """Start what process.roles says; what had been started is stopped again when something fails.

        ConfigError for a configuration that does not fit this directory or cluster, NodeError for all other reasons
        an operator can do something about.
        """
        try:
            await self._start()
        except (*CLUSTER_ERRORS, ControllerStartError, StorageFailure, OSError) as error:
            raise NodeError(str(error)) from error

    async def _start(self) -> None:
        config = self.config.current
        async with AsyncExitStack() as stack:
            stack.callback(self._lock_directory().release)
            stack.callback(self.disk.close)
            reserve = DiskReserve(self.file_system, config.log_dir)
            reserve.release()
            await self._serve_http(stack)
            meta = self._meta = await self._identify()
            log.info(
                "node_starting",
                cluster_id=meta.cluster_id,
                node_id=meta.node_id,
                directory_id=uuid_to_text(meta.directory_id),
                seed=self.chance.seed,
            )
            if config.is_controller:
                self.controller = self._build_controller(meta)
                self._cluster = self._as_the_controller_has_it(self.controller)
                await self.controller.start()
                stack.push_async_callback(self.controller.stop)
            if config.is_broker:
                self.broker = self._build_broker(meta)
                self._cluster = self._as_the_broker_has_it(self.broker)
                await self.broker.start()
                stack.push_async_callback(self.broker.stop)
            reserve.restore()
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """The reverse of the start: first the broker, while its controller still answers."""
        await self._stack.aclose()

    @property
    def is_ready(self) -> bool:
        halves = [half for half in (self.controller, self.broker) if half is not None]
        return bool(halves) and all(half.is_ready for half in halves)

    def not_ready_reason(self) -> str:
        """For whoever asks /readyz, while `is_ready` is not."""
        broker = self.broker
        if broker is None or not broker.lifecycle.is_running:
            return "starting or stopping"
        if broker.lifecycle.is_fenced:
            return "fenced: the controller fenced this broker, or was not heard for a session"
        return "the metadata of the cluster cannot be followed"

    async def status(self) -> dict[str, Any]:
        """Who this is, and the cluster as it is known here, for the page; `cluster` is None before there is one."""
        config = self.config.current
        return {
            "node_id": config.node_id,
            "roles": list(config.process_roles),
            "rack": config.broker_rack,
            "version": __version__,
            "cluster_id": None if self._meta is None else self._meta.cluster_id,
            "not_ready": None if self.is_ready else self.not_ready_reason(),
            "cluster": None if self._cluster is None else await self._cluster.describe(),
        }

    def _as_the_controller_has_it(self, server: ControllerServer) -> ClusterStatus:
        own_id = self.config.current.node_id
        return ClusterStatus(lambda: server.controller.image, lambda: own_id if server.controller.is_active else None)

    def _as_the_broker_has_it(self, server: BrokerServer) -> ClusterStatus:
        def controller_id() -> int | None:
            leader = server.link.finder.leader
            return None if leader is None else leader.node_id

        return ClusterStatus(lambda: server.cache.image, controller_id, server.repository.topic_config)

    def _lock_directory(self) -> FileLock:
        directory = self.config.current.log_dir
        self.file_system.make_directories(directory)
        return self.file_system.lock(directory / ".lock")

    async def _serve_http(self, stack: AsyncExitStack) -> None:
        address = self.config.current.metrics_http_listener
        self.http = HttpEndpoint(
            address.host,
            address.port,
            self.registry,
            lambda: self.is_ready,
            reason=self.not_ready_reason,
            status=self.status,
            faults=self.faults,
        )
        try:
            await self.http.start()
        except OSError as error:
            raise NodeError(f"metrics.http.listener={address}: {error.strerror or error}") from error
        stack.push_async_callback(self.http.close)

    async def _identify(self) -> MetaProperties:
        """Who this node is, by its directory; an empty one formats itself.

        A node with the controller role makes a new cluster; a broker alone asks the controllers which one it joins.
        """
        config = self.config.current
        cluster_id = None
        if not config.is_controller:
            is_formatted = read_meta_properties(self.file_system, config.log_dir) is not None
            ask = ask_for_cluster_id if is_formatted else wait_for_cluster_id
            cluster_id = await ask(config, self.network)
        return load_or_format(
            self.file_system, self.clock, self.chance, config.log_dir, node_id=config.node_id, cluster_id=cluster_id
        )

    def _build_controller(self, meta: MetaProperties) -> ControllerServer:
        return ControllerServer(
            self.config,
            directory=self.config.current.log_dir,
            cluster_id=meta.cluster_id,
            clock=self.clock,
            chance=self.chance,
            file_system=self.file_system,
            disk=self.disk,
            registry=self.registry,
            request_metrics=self.request_metrics,
            network=self.network,
        )

    def _build_broker(self, meta: MetaProperties) -> BrokerServer:
        config = self.config.current
        identity = BrokerIdentity(
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            incarnation_id=self.chance.uuid(),
            directory_id=meta.directory_id,
            rack=config.broker_rack,
        )
        return BrokerServer(
            self.config,
            identity,
            self._controller_endpoints(),
            Outside(self.clock, self.chance, self.file_system, self.disk, self.network),
            registry=self.registry,
            request_metrics=self.request_metrics,
            faults=self.faults,
        )

    def _controller_endpoints(self) -> list[Endpoint]:
        """Whom the broker half asks for the quorum's leader: a quorum of one in this process is found by its port."""
        config = self.config.current
        if self.controller is None:
            return [Endpoint(*server) for server in config.quorum_bootstrap_servers]
        listener = config.advertised_controller_listeners[0]
        host = listener.host if listener.host not in WILDCARD_HOSTS else "localhost"
        return [Endpoint(host, self.controller.ports[listener.name])]


def _may_have_faults(config: BrokerConfig) -> bool:
    return config.wherry_fault_switch_enable or is_loopback(config.metrics_http_listener.host)


async def wait_for_cluster_id(config: BrokerConfig, network: Network) -> str:
    """The cluster id, once a controller tells it; BrokerStartError when none does in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.initial_broker_registration_timeout_ms / 1000
    while loop.time() < deadline:
        cluster_id = await ask_for_cluster_id(config, network)
        if cluster_id is not None:
            return cluster_id
        await asyncio.sleep(CLUSTER_ID_RETRY_SECONDS)
    raise BrokerStartError(
        "no controller told the cluster id, which this empty data directory needs: is one of "
        f"{', '.join(map(str, config.quorum_bootstrap_servers))} up? Apache Kafka's controllers tell it from "
        "metadata.version 3.7-IV0 on; below it, or without them, `wherry format --cluster-id ID` gives it"
    )


async def ask_for_cluster_id(config: BrokerConfig, network: Network) -> str | None:
    """The cluster id of whichever controller answers first, each asked once; None when none does."""
    schema = RequestSchema.of(ApiKey.DESCRIBE_CLUSTER, 1)
    request = schema.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=CONTROLLER_ENDPOINT
    )
    for host, port in config.quorum_bootstrap_servers:
        client = BrokerClient(host, port, f"broker-{config.node_id}", network=network)
        try:
            answer = await client.send(ApiKey.DESCRIBE_CLUSTER, 1, request, config.controller_quorum_request_timeout_ms)
            if answer.error_code == ErrorCode.none:
                return str(answer.cluster_id)
            log.warning("cluster_id_not_told", endpoint=f"{host}:{port}", error=answer.error_code.name)
        except (OSError, TimeoutError) as error:
            log.info("controller_not_reached", endpoint=f"{host}:{port}", error=str(error))
        finally:
            await client.close()
    return None


def run(config: BrokerConfig, *, announce: Callable[[str], None]) -> int:
    """Run a node until SIGTERM or SIGINT; returns the exit code.  A second signal ends the process at once.

    ConfigError or NodeError when it could not start, NodeError when it had to stop by itself.
    """
    tune_process()
    return uvloop.run(_run(config, announce))


async def _run(config: BrokerConfig, announce: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Ending] = loop.create_future()
    _stop_on_signals(loop, ended)
    loop.set_exception_handler(lambda _loop, context: on_loop_error(context, ended))
    node = Node(config)
    EventLoopMetrics(node.registry).start()
    if await start_unless_ended(node, ended):
        gc_freeze()
        seconds = process_age_seconds()
        log.info("node_ready", seconds=round(seconds, 3))
        for line in announcement(node, seconds):
            announce(line)
        async with BackgroundTasks("runtime") as tasks:
            tasks.start("trim-heap", trim_heap_regularly())
            await ended
        await node.stop()
    ending = ended.result()
    if ending.reason:
        raise NodeError(ending.reason)
    return ending.exit_code


async def start_unless_ended(node: Node, ended: "asyncio.Future[Ending]") -> bool:
    """Start, but give up when `ended` says so meanwhile: False, and what had been started is stopped."""
    starting = asyncio.current_task()
    assert starting is not None
    is_starting = True

    def give_up(_: object) -> None:
        if is_starting:
            starting.cancel()

    ended.add_done_callback(give_up)
    try:
        await node.start()
    except asyncio.CancelledError:
        if not ended.done():
            raise
        starting.uncancel()
        return False
    finally:
        is_starting = False
    return True


def _stop_on_signals(loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[Ending]") -> None:
    def on_signal(number: signal.Signals) -> None:
        if ended.done():
            log.warning("stopping_at_once", signal=number.name)
            os._exit(128 + number)
        log.info("stopping", signal=number.name)
        ended.set_result(Ending(0))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


def on_loop_error(
    context: dict[str, Any], ended: "asyncio.Future[Ending]", halt: Callable[[int], object] = os._exit
) -> None:
    """A task or callback failed and nobody was there to hear of it.

    What the cluster does to us ends the node in order.  What nobody expected halts it at once, as a broken invariant
    does in Kafka: no clean-shutdown marker, so that the next start looks at everything.
    """
    error = context.get("exception")
    if isinstance(error, CLUSTER_ERRORS):
        if not ended.done():
            ended.set_result(Ending(1, str(error)))
    elif error is None or "future" in context:  # a complaint of the loop, or a failure whose waiter was cancelled
        log.warning("event_loop_complains", reason=context.get("message"), exc_info=error)
    else:
        log.critical("halting", reason=context.get("message"), exc_info=error)
        sys.stderr.flush()
        halt(1)


def announcement(node: Node, seconds: float) -> list[str]:
    """What whoever started us wants to know, in a few lines."""
    config = node.config.current
    lines = [f"Wherry {__version__} is ready after {seconds:.2f} s"]
    if node.broker is not None:
        listeners = node.broker.advertised_listeners()
        lines += [f"  clients     {each.host}:{each.port} ({each.name})" for each in listeners]
    if node.controller is not None:
        lines += [
            f"  controller  {each.host}:{node.controller.ports[each.name]}" for each in config.controller_listeners
        ]
    lines.append(f"  data        {config.log_dir}")
    if node.http is not None:
        lines.append(f"  metrics     http://{node.http.host or 'localhost'}:{node.http.port}/metrics")
    if node.broker is not None:
        lines.append(f"  try         kcat -b {listeners[0].host}:{listeners[0].port} -L")
    return lines
