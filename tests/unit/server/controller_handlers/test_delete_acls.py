from broker.server import handlers
from broker.server.controller_handlers.delete_acls import delete_acls


def test_the_brokers_handler_answers_here_too() -> None:
    assert delete_acls is handlers.delete_acls.delete_acls
