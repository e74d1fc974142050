from broker.server.api_registry import ApiRegistry
from broker.server.controller_handlers import api_versions
from broker.server.handlers.api_versions import api_versions as of_the_broker


def test_the_controller_answers_with_the_same_function() -> None:
    (handler,) = ApiRegistry.from_modules([api_versions])
    assert handler.function is of_the_broker
