"""Who looks after the objects of brokers that do not come back."""

from uuid import UUID

from broker.metadata.broker_registration import BrokerRegistration
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import RegisterBrokerRecord
from broker.wal.retention.departed_brokers import DepartedBrokers, Zone


def zone(here: set[int], elsewhere: set[int] | None = None) -> Zone:
    return Zone(frozenset(here), frozenset(here | (elsewhere or set())))


def test_a_broker_that_is_gone_for_long_is_left_behind() -> None:
    departed = DepartedBrokers(1, 100)
    departed.observe(zone({1, 2}), 0)
    departed.observe(zone({1}), 10)
    assert departed.left_behind(zone({1}), 109) == []
    assert departed.left_behind(zone({1}), 110) == [2]
    departed.forget(2)
    departed.observe(zone({1}), 111)
    assert departed.left_behind(zone({1}), 1000) == []


def test_one_that_comes_back_is_not() -> None:
    departed = DepartedBrokers(1, 100)
    departed.observe(zone({1, 2}), 0)
    departed.observe(zone({1}), 10)
    departed.observe(zone({1, 2}), 50)
    departed.observe(zone({1}), 60)
    assert departed.left_behind(zone({1}), 159) == []
    assert departed.left_behind(zone({1}), 160) == [2]


def test_only_the_lowest_id_that_is_up_looks_after_them() -> None:
    departed = DepartedBrokers(2, 100)
    departed.observe(zone({1, 2, 3}), 0)
    departed.observe(zone({1, 2}), 0)
    assert departed.left_behind(zone({1, 2}), 100) == []
    departed.observe(zone({2}), 100)
    assert departed.left_behind(zone({2}), 100) == [3]
    assert departed.left_behind(zone(set()), 100) == []  # itself fenced


def test_brokers_of_other_zones_are_others_business() -> None:
    departed = DepartedBrokers(1, 100)
    departed.observe(zone({1}, {5}), 0)
    departed.observe(zone({1}), 10)
    assert departed.left_behind(zone({1}), 1000) == []


def test_one_found_by_its_objects_counts_from_then() -> None:
    departed = DepartedBrokers(1, 100)
    departed.found([8, 9], zone({1}, {9}), 50)
    assert departed.left_behind(zone({1}, {9}), 149) == []
    assert departed.left_behind(zone({1}, {9}), 150) == [8]


def test_a_zone_is_those_of_a_rack_that_are_not_fenced() -> None:
    records = [
        RegisterBrokerRecord(
            broker_id=broker_id, incarnation_id=UUID(int=broker_id), broker_epoch=broker_id, rack=rack, fenced=fenced
        )
        for broker_id, rack, fenced in ((1, "a", False), (2, "a", True), (3, "b", False), (4, None, False))
    ]
    image = MetadataImage(brokers={each.broker_id: BrokerRegistration.from_record(each) for each in records})
    everybody = frozenset({1, 3, 4})
    assert Zone.of(image, "a") == Zone(frozenset({1}), everybody)
    assert Zone.of(image, None) == Zone(frozenset({4}), everybody)
