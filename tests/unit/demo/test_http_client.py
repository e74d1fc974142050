import asyncio

import pytest

from broker.common.chance import Chance
from broker.demo import http_client
from broker.demo.http_client import http_get, http_post
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.fault_switch import FaultSwitch
from broker.server.http_endpoint import HttpEndpoint
from tests.support.patience import PATIENCE_S


async def test_what_a_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "TIMEOUT_SECONDS", PATIENCE_S)
    registry = MetricsRegistry()
    registry.gauge("answer", "Of everything.", lambda: 42)
    faults = FaultSwitch(Chance(1))
    endpoint = HttpEndpoint("127.0.0.1", 0, registry, lambda: False, faults=faults)
    await endpoint.start()
    try:
        metrics = await http_get(endpoint.port, "/metrics")
        assert (metrics.status, "answer 42.0" in metrics.body.decode()) == (200, True)
        assert (await http_get(endpoint.port, "/readyz")).status == 503
        assert (await http_post(endpoint.port, "/faults", {"down": "reset"})).status == 200
        assert faults.describe()["all"]["down"] == "reset"
        refused = await http_post(endpoint.port, "/faults", {"down": "nonsense"})
        assert (refused.status, b"nonsense" in refused.body) == (400, True)
    finally:
        await endpoint.close()


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\4", b"SSH-2.0-x\r\n\r\n"])
async def test_others_are_refused(answer: bytes) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(OSError):
            await http_get(port, "/metrics")
    finally:
        server.close()
    with pytest.raises(OSError):
        await http_get(port, "/metrics")
