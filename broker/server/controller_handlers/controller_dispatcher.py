"""The dispatcher of a controller's listeners, with everything its handlers ask for."""

from broker.controller.controller import Controller
from broker.metrics.request_metrics import RequestMetrics
from broker.server.api_registry import controller_api_registry
from broker.server.api_version_manager import ApiVersionManager
from broker.server.controller_handlers.controller_features import ControllerFeatures
from broker.server.controller_handlers.envelope import EnvelopeDispatcher
from broker.server.dispatcher import Dispatcher


def build_controller_dispatcher(controller: Controller, metrics: RequestMetrics) -> Dispatcher:
    """For the listeners named by controller.listener.names."""
    registry = controller_api_registry()
    envelopes = EnvelopeDispatcher()
    versions = ApiVersionManager(registry, ControllerFeatures(controller))
    dispatcher = Dispatcher(registry, [*controller.services, envelopes, versions], metrics)
    envelopes.dispatch = dispatcher.dispatch_envelope
    return dispatcher
