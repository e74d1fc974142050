from broker.server import handlers
from broker.server.controller_handlers.create_acls import create_acls


def test_the_brokers_handler_answers_here_too() -> None:
    assert create_acls is handlers.create_acls.create_acls
