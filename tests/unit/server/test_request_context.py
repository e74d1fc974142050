from broker.server.request_context import ANONYMOUS, RequestContext


def test_who_asks_is_nobody_in_particular() -> None:
    context = RequestContext("PLAINTEXT", "PLAINTEXT", "10.0.0.1", 40000, 9092, "id")
    assert (context.principal, context.from_envelope) == (ANONYMOUS, False)
    assert ANONYMOUS == "User:ANONYMOUS"
    assert (context.client_software_name, context.client_software_version) == ("unknown", "unknown")
