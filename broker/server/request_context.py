"""Who asks, and through which door: everything about a request that is not in its bytes."""

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"  # KafkaPrincipal.ANONYMOUS


@dataclass(slots=True)
class RequestContext:
    """One per connection; the dispatcher of an Envelope makes one for the forwarded request.

    `received_at` is the loop's time at which the current request's last byte came.
    """

    listener_name: str
    security_protocol: str
    client_host: str
    client_port: int
    local_port: int
    connection_id: str
    principal: str = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    received_at: float = 0.0
    from_envelope: bool = False
