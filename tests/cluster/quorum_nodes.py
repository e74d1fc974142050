"""Apache Kafka's controllers as nodes of a cluster whose brokers are ours: they are killed and paused as well."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.apache_controllers import ApacheControllers


class QuorumNode:
    """One voter."""

    roles: Sequence[str] = ("controller",)

    def __init__(self, controllers: ApacheControllers, node_id: int) -> None:
        self._controllers, self._node_id = controllers, node_id

    @property
    def data(self) -> Path:
        return self._controllers.log_file(self._node_id).parent / "data"

    def launch(self) -> None:
        self._controllers.start_node(self._node_id)

    def wait_until_ready(self) -> None:
        self._controllers.wait_for_leader()

    def is_running(self) -> bool:
        return self._controllers.is_running(self._node_id)

    def kill(self) -> None:
        self._controllers.kill(self._node_id)

    def pause(self) -> None:
        self._controllers.pause(self._node_id)

    def resume(self) -> None:
        self._controllers.resume(self._node_id)

    def stop(self) -> int:
        """Nothing of a voter is looked at afterwards: kill -9."""
        self.kill()
        return 0

    def log_text(self) -> str:
        return self._controllers.log_file(self._node_id).read_text(errors="replace")

    def log_tail(self, lines: int = 60) -> str:
        return self._controllers.log_tail(self._node_id, lines)

    def __exit__(self, *_: object) -> None:
        if self.is_running():
            self.kill()


def nodes_of(controllers: ApacheControllers) -> dict[int, QuorumNode]:
    return {node_id: QuorumNode(controllers, node_id) for node_id in controllers.ports}
