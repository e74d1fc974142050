"""DeleteAcls on a controller: the broker's handler, since neither has an authorizer."""

from broker.server.handlers.delete_acls import delete_acls

__all__ = ["delete_acls"]
