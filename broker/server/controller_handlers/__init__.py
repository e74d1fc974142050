"""One module per API of the controller's listeners, in alphabetical order: what stands here is offered there."""

from broker.server.controller_handlers import api_versions as api_versions
