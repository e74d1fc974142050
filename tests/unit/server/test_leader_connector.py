from uuid import UUID

import pytest

from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.network.byte_stream import AsyncioNetwork
from broker.replication.leader_endpoint import LeaderUnavailableError
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.schemas.cluster_metadata import BrokerEndpoint, FeatureLevelRecord, MetadataRecord, RegisterBrokerRecord
from broker.server.leader_connector import LeaderConnector
from tests.support.builders import broker_config


def connector(*records: MetadataRecord, listener: str = "INTERNAL") -> LeaderConnector:
    cache = MetadataCache()
    delta = MetadataDelta(cache.image)
    for record in records:
        delta.replay(record)
    cache.set_image(delta.apply(1, 1))
    config = broker_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9093,CONTROLLER://127.0.0.1:9190",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": listener,
        }
    )
    return LeaderConnector(1, ConfigHolder(config), cache, lambda: 5, AsyncioNetwork())


def registered(*names: str) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=2,
        incarnation_id=UUID(int=1002),
        broker_epoch=12,
        fenced=False,
        end_points=tuple(
            BrokerEndpoint(name=name, host=name.lower(), port=9000 + index, security_protocol=0)
            for index, name in enumerate(names)
        ),
    )


def test_a_leader_is_reached_on_the_inter_broker_listener() -> None:
    known = connector(registered("PLAINTEXT", "INTERNAL"))
    assert known.address_of(2) == LeaderAddress(2, "internal", 9001)
    assert known.address_of(3) is None
    assert connector(registered("PLAINTEXT")).address_of(2) is None


def test_the_level_of_the_cluster_decides_the_versions() -> None:
    assert connector()._metadata_version() == 7
    assert connector(FeatureLevelRecord(name="metadata.version", feature_level=25))._metadata_version() == 25


async def test_an_endpoint_connects_when_it_is_used() -> None:
    endpoint = connector().connect(LeaderAddress(2, "127.0.0.1", 1), 0)  # nobody listens there
    with pytest.raises(LeaderUnavailableError):
        await endpoint.fetch({}, max_wait_ms=10)
    await endpoint.close()


async def test_questions_about_epochs_have_a_connection_of_their_own() -> None:
    known, address = connector(), LeaderAddress(2, "127.0.0.1", 1)
    client = known.connect_for_epochs(address)
    assert (client.host, client.port, client.is_connected) == ("127.0.0.1", 1, False)
    assert known.connect_for_epochs(address) is not client
