from uuid import UUID

from broker.metadata.broker_registration import BrokerRegistration, Endpoint, SecurityProtocol, VersionRange
from broker.schemas.cluster_metadata import BrokerRegistrationChangeRecord
from tests.unit.metadata.image_support import broker_record, directory_of

BROKER = BrokerRegistration.from_record(broker_record(1, rack="a"))


def test_from_record_and_back() -> None:
    assert BROKER.listeners == {"PLAINTEXT": Endpoint("host-1", 9092, SecurityProtocol.PLAINTEXT)}
    assert BROKER.features == {"metadata.version": VersionRange(7, 29)}
    assert BROKER.to_record() == broker_record(1, rack="a")


def test_changes_are_three_valued() -> None:
    def merged(**fields: object) -> BrokerRegistration:
        change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, **fields)  # type: ignore[arg-type]
        return BROKER.merge(change)

    assert merged() == BROKER
    assert merged(fenced=1).fenced
    assert not merged(fenced=-1).fenced
    assert merged(in_controlled_shutdown=1).in_controlled_shutdown
    assert merged(log_dirs=(UUID(int=0x900),)).directories == (UUID(int=0x900),)
    assert merged(fenced=1).directories == (directory_of(1),)


def test_active_is_neither_fenced_nor_leaving() -> None:
    assert BROKER.is_active
    assert not BrokerRegistration(id=1, epoch=1, fenced=True).is_active
    assert not BrokerRegistration(id=1, epoch=1, fenced=False, in_controlled_shutdown=True).is_active


def test_ranges_include_both_ends() -> None:
    assert [level for level in range(10) if level in VersionRange(3, 5)] == [3, 4, 5]
    assert str(VersionRange(7, 29)) == "7-29"
