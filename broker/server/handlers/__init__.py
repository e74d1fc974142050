"""One module per API of the broker's listeners, in alphabetical order: what stands here is offered to clients."""

from broker.server.handlers import api_versions as api_versions
