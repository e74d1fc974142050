from collections.abc import Mapping

import pytest

from broker.common.errors import ErrorCode
from broker.controller.api_error import NO_ERROR, ApiError
from broker.controller.client_quota_control_manager import ClientQuotaControlManager, QuotaAlteration, QuotaChange
from broker.metadata.metadata_image import QuotaEntity
from broker.schemas.cluster_metadata import ClientQuotaEntity, ClientQuotaRecord
from tests.unit.controller.controller_support import ControlWorld

BOTH: QuotaEntity = (("user", "alice"), ("client-id", "app"))


class QuotaWorld(ControlWorld):
    def alter(self, *alterations: tuple[QuotaEntity, Mapping[str, float | None]]) -> list[ApiError]:
        manager = ClientQuotaControlManager(self.state)
        given = [
            QuotaAlteration(entity, [QuotaChange(key, value) for key, value in changes.items()])
            for entity, changes in alterations
        ]
        results = self.apply(manager.alter_client_quotas(given))
        assert [entity for entity, _ in results] == [entity for entity, _ in alterations]
        return [error for _, error in results]


def refusal(entity: QuotaEntity, changes: dict[str, float | None]) -> str | None:
    world = QuotaWorld()
    ((code, message),) = world.alter((entity, changes))
    assert code is ErrorCode.invalid_request
    assert world.image.client_quotas == {}
    return message


def test_set_change_and_remove() -> None:
    world = QuotaWorld()
    assert world.alter((BOTH, {"producer_byte_rate": 1000.0, "request_percentage": 12.5})) == [NO_ERROR]
    assert world.image.client_quotas == {BOTH: {"producer_byte_rate": 1000.0, "request_percentage": 12.5}}
    world.records.clear()
    assert world.alter((BOTH, {"producer_byte_rate": 1000.0, "request_percentage": None})) == [NO_ERROR]
    parts = tuple(ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in BOTH)
    assert world.records == [ClientQuotaRecord(entity=parts, key="request_percentage", value=0.0, remove=True)]
    world.alter((BOTH, {"producer_byte_rate": None}))
    assert world.image.client_quotas == {}
    world.records.clear()
    assert world.alter((BOTH, {"producer_byte_rate": None})) == [NO_ERROR]
    assert world.records == []


def test_the_order_of_the_parts_says_nothing() -> None:
    world = QuotaWorld()
    world.alter((BOTH, {"producer_byte_rate": 1000.0}))
    assert world.alter((BOTH[::-1], {"producer_byte_rate": 7.0})) == [NO_ERROR]
    assert world.image.client_quotas == {BOTH: {"producer_byte_rate": 7.0}}


def test_defaults_and_addresses() -> None:
    world = QuotaWorld()
    entities: list[QuotaEntity] = [
        (("user", None),),
        (("client-id", None),),
        (("user", None), ("client-id", "app")),
    ]
    assert world.alter(*((entity, {"consumer_byte_rate": 2.0}) for entity in entities)) == [NO_ERROR] * 3
    for address in (None, "10.0.0.1", "::1", "host.example"):
        assert world.alter(((("ip", address),), {"connection_creation_rate": 5.0})) == [NO_ERROR]
    assert len(world.image.client_quotas) == 7


def test_each_entity_stands_for_itself() -> None:
    world = QuotaWorld()
    good: QuotaEntity = (("user", "bob"),)
    (first, second) = world.alter(
        (BOTH, {"producer_byte_rate": 5.0, "nonsense": 1.0}), (good, {"request_percentage": 1})
    )
    assert first == (ErrorCode.invalid_request, "Invalid configuration key nonsense")
    assert second == NO_ERROR
    assert world.image.client_quotas == {good: {"request_percentage": 1}}


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ((), "Invalid empty client quota entity"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("user", ""),), "Empty user not supported"),
        ((("user", "a"), ("user", "b")), "Invalid client quota entity, duplicate entity entry user"),
        ((("user", "a"), ("ip", "::1")), "Invalid quota entity combination: ip does not go with user or client-id"),
        ((("ip", "1.2.3.999"),), "1.2.3.999 is not a valid IP or resolvable host."),
        ((("ip", "a host"),), "a host is not a valid IP or resolvable host."),
    ],
)
def test_entities_that_cannot_be(entity: QuotaEntity, message: str) -> None:
    assert refusal(entity, {"producer_byte_rate": 1.0}) == message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ("request_percentage", 0.0, "Quota request_percentage must be greater than 0"),
        ("request_percentage", float("nan"), "Quota request_percentage must be greater than 0"),
        ("producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", 1.5, "Configuration producer_byte_rate must be a Long value"),
        ("consumer_byte_rate", float("inf"), "Configuration consumer_byte_rate must be a Long value"),
    ],
)
def test_values_that_cannot_be(key: str, value: float, message: str) -> None:
    assert refusal(BOTH, {key: value}) == message


def test_what_is_named_twice() -> None:
    world = QuotaWorld()
    manager = ClientQuotaControlManager(world.state)
    changes = [QuotaChange("producer_byte_rate", 1.0), QuotaChange("producer_byte_rate", 2.0)]
    ((_, error),) = world.apply(manager.alter_client_quotas([QuotaAlteration(BOTH, changes)]))
    assert error.code is ErrorCode.invalid_request
    assert world.image.client_quotas == {}
    first, second = world.alter((BOTH, {"producer_byte_rate": 1.0}), (BOTH[::-1], {"producer_byte_rate": 2.0}))
    assert (first, second[0]) == (NO_ERROR, ErrorCode.invalid_request)
    assert world.image.client_quotas == {BOTH: {"producer_byte_rate": 1.0}}
