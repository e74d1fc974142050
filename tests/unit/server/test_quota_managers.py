from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import ClientQuotaEntity, ClientQuotaRecord, TopicRecord
from broker.server.client_quota_manager import Part
from broker.server.quota_managers import QuotaManagers
from tests.unit.controller.controller_support import broker_config
from tests.unit.server.link_support import TOPIC_ID

APP = (ClientQuotaEntity(entity_type="client-id", entity_name="app"),)


class World:
    def __init__(self) -> None:
        self.image = MetadataImage.EMPTY
        self.quotas = QuotaManagers(broker_config(), lambda: 0, lambda: 0.0)

    def replay(self, *records: ClientQuotaRecord | TopicRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + 1, 1)
        self.quotas.on_metadata(delta, self.image)

    def limits(self) -> list[float | None]:
        managers = (self.quotas.produce, self.quotas.fetch, self.quotas.request)
        found = [manager.limit("alice", "app") for manager in managers]
        return [None if each is None else each[1] for each in found]


def quota(key: str, value: float | None, entity: tuple[ClientQuotaEntity, ...] = APP) -> ClientQuotaRecord:
    return ClientQuotaRecord(entity=entity, key=key, value=value or 0.0, remove=value is None)


def test_each_key_is_a_kind_of_its_own() -> None:
    world = World()
    assert not world.quotas.is_configured
    world.replay(quota("producer_byte_rate", 1.0), quota("consumer_byte_rate", 2.0), quota("request_percentage", 3.0))
    assert world.quotas.is_configured
    assert world.limits() == [1.0, 2.0, 3.0]
    world.replay(quota("consumer_byte_rate", None), quota("request_percentage", 4.0))
    assert world.limits() == [1.0, None, 4.0]
    world.replay(quota("producer_byte_rate", None), quota("request_percentage", None))
    assert not world.quotas.is_configured
    assert world.limits() == [None, None, None]


def test_quotas_of_addresses_and_of_changes_limit_nothing_here() -> None:
    world = World()
    address = (ClientQuotaEntity(entity_type="ip", entity_name="10.0.0.1"),)
    world.replay(quota("connection_creation_rate", 1.0, address))
    assert not world.quotas.is_configured
    world.replay(quota("controller_mutation_rate", 1.0))
    assert world.quotas.is_configured  # for the delays of the controller
    assert world.limits() == [None, None, None]


def test_other_changes_leave_quotas_alone() -> None:
    world = World()
    world.replay(quota("producer_byte_rate", 1.0))
    world.quotas.produce.set_limits({(Part.ABSENT, "app"): 7.0})
    world.replay(TopicRecord(name="t", topic_id=TOPIC_ID))
    assert world.limits() == [7.0, None, None]


def test_the_percentage_of_the_time_delays_a_sample_at_most() -> None:
    world = World()
    world.replay(quota("producer_byte_rate", 1.0), quota("request_percentage", 1.0))
    assert world.quotas.produce.record("alice", "app", 110) == 100_000
    assert world.quotas.request.record("alice", "app", 110) == 1000
