from broker.server import handlers
from broker.server.controller_handlers.describe_acls import describe_acls


def test_the_brokers_handler_answers_here_too() -> None:
    assert describe_acls is handlers.describe_acls.describe_acls
