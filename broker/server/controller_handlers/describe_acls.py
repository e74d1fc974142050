"""DescribeAcls on a controller: the broker's handler, since neither has an authorizer."""

from broker.server.handlers.describe_acls import describe_acls

__all__ = ["describe_acls"]
