"""CreateAcls on a controller: the broker's handler, since neither has an authorizer."""

from broker.server.handlers.create_acls import create_acls

__all__ = ["create_acls"]
