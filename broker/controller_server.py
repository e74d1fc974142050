"""ControllerServer: the controller half of a node, the embedded controller behind its own listeners."""

from contextlib import AsyncExitStack
from pathlib import Path

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.disk import DiskExecutor
from broker.common.file_system import FileSystem
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.controller.controller import Controller
from broker.metrics.controller_metrics import ControllerMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.request_metrics import RequestMetrics
from broker.network.byte_stream import Network
from broker.server import controller_handlers
from broker.server.api_registry import ApiRegistry
from broker.server.api_version_manager import ApiVersionManager
from broker.server.controller_handlers.controller_features import ControllerFeatures
from broker.server.controller_handlers.envelope import EnvelopeDispatcher
from broker.server.dispatcher import Dispatcher
from broker.server.socket_server import SocketServer


class ControllerServer:
    """Life: construct, `start`, `stop`.  What runs is entered on one stack, so a stop is the reverse of the start."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        *,
        directory: Path,
        cluster_id: str,
        clock: Clock,
        chance: Chance,
        file_system: FileSystem,
        disk: DiskExecutor,
        registry: MetricsRegistry,
        request_metrics: RequestMetrics,
        network: Network,
    ) -> None:
        self._config = config
        self._network = network
        self._request_metrics = request_metrics
        self.controller = Controller(
            config.current, directory, cluster_id, clock, chance, file_system, disk, ControllerMetrics(registry)
        )
        self.ports: dict[str, int] = {}
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """Recover, lead, and listen.  ControllerStartError, StorageFailure or OSError say why not."""
        async with AsyncExitStack() as stack:
            await self.controller.start()
            await stack.enter_async_context(self.controller.running())
            dispatcher = build_controller_dispatcher(self.controller, self._request_metrics)
            await stack.enter_async_context(dispatcher.running())
            sockets = SocketServer(self._config, dispatcher, self._network)
            await stack.enter_async_context(sockets.running())
            for name, host, port, protocol in self._config.current.controller_listeners:
                self.ports[name] = await sockets.bind(name, host, port, protocol)
            await sockets.start_accepting()
            self._stack = stack.pop_all()

    @property
    def is_ready(self) -> bool:
        return self.controller.is_active

    async def stop(self) -> None:
        await self._stack.aclose()


def build_controller_dispatcher(controller: Controller, metrics: RequestMetrics) -> Dispatcher:
    """What answers on the listeners that controller.listener.names lists."""
    apis = ApiRegistry.from_package(controller_handlers)
    envelopes = EnvelopeDispatcher()
    versions = ApiVersionManager(apis, ControllerFeatures(controller))
    dispatcher = Dispatcher(apis, [*controller.services, envelopes, versions], metrics)
    envelopes.dispatch = dispatcher.dispatch_envelope
    return dispatcher
