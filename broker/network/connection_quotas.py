"""How many connections there may be, in all and from one address (Kafka's ConnectionQuotas)."""

from typing import Final, Protocol

TOO_MANY: Final = "max.connections"
TOO_MANY_FROM_ADDRESS: Final = "max.connections.per.ip"


class ConnectionBounds(Protocol):
    """The settings this needs; a dynamic change is seen at the next connection."""

    @property
    def max_connections(self) -> int: ...
    def max_connections_of(self, address: str) -> int: ...


class ConnectionQuotas:
    """Open connections by address."""

    def __init__(self) -> None:
        self.count = 0
        self._by_address: dict[str, int] = {}

    def refusal(self, address: str, bounds: ConnectionBounds) -> str | None:
        """The name of the setting that forbids one more connection from this address, or None."""
        if self.count >= bounds.max_connections:
            return TOO_MANY
        is_full = self._by_address.get(address, 0) >= bounds.max_connections_of(address)
        return TOO_MANY_FROM_ADDRESS if is_full else None

    def add(self, address: str) -> None:
        self.count += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def remove(self, address: str) -> None:
        self.count -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]

    def count_from(self, address: str) -> int:
        return self._by_address.get(address, 0)
