"""ApiVersions on the controller's listeners: the same answer, from the controller's own registry."""

from broker.server.handlers.api_versions import api_versions as api_versions
