"""Whole nodes for unit tests: on loopback and free ports, data in a temporary directory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.node import Node
from tests.support.patience import PATIENCE_S


def node_config(directory: Path, **properties: str) -> BrokerConfig:
    """A cluster of one with free ports; underscores stand for dots."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig(
        {
            **DEFAULT_SINGLE_NODE,
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.quorum.bootstrap.servers": "127.0.0.1:1",
            "metrics.http.listener": "127.0.0.1:0",
            "log.dirs": str(directory),
            **given,
        }
    )


@asynccontextmanager
async def running_node(config: BrokerConfig) -> AsyncIterator[Node]:
    node = Node(config)
    async with asyncio.timeout(PATIENCE_S):
        await node.start()
    try:
        yield node
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await node.stop()
