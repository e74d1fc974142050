"""ClientQuotaControlManager: how much clients may send, read and ask for, by user, client id or address (KIP-546)."""

import ipaddress
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.common.errors import InvalidRequestError
from broker.controller.api_error import NO_ERROR, ApiError
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.metadata.metadata_image import QuotaEntity
from broker.schemas.cluster_metadata import ClientQuotaEntity, ClientQuotaRecord, MetadataRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_WHOLE_NUMBERS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "a Long",
    "consumer_byte_rate": "a Long",
    "connection_creation_rate": "an Integer",
}
CLIENT_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
ADDRESS_KEYS: Final = frozenset({"connection_creation_rate"})
_ROUNDING: Final = 1e-6  # a whole number as a client's arithmetic may have left it
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?:\.(?!-)[A-Za-z0-9-]{1,63})*\.?")


class QuotaChange(NamedTuple):
    """One key of an entity: the new value, or None to remove it."""

    key: str
    value: float | None


class QuotaAlteration(NamedTuple):
    entity: QuotaEntity
    changes: Sequence[QuotaChange]


class ClientQuotaControlManager:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def alter_client_quotas(
        self, alterations: Iterable[QuotaAlteration]
    ) -> ControllerResult[list[tuple[QuotaEntity, ApiError]]]:
        """All changes of an entity or none, each entity by itself; answered in the order of the request."""
        records: list[MetadataRecord] = []
        results: list[tuple[QuotaEntity, ApiError]] = []
        seen: set[frozenset[tuple[str, str | None]]] = set()
        for entity, changes in alterations:
            key = frozenset(entity)
            try:
                if key in seen:
                    raise InvalidRequestError(f"Duplicate client quota entity {dict(entity)} in one request")
                seen.add(key)
                records += self._records(entity, changes)
                results.append((entity, NO_ERROR))
            except InvalidRequestError as error:
                results.append((entity, ApiError.of(error)))
        return ControllerResult(records, results)

    def _records(self, entity: QuotaEntity, changes: Sequence[QuotaChange]) -> list[MetadataRecord]:
        valid_keys = _valid_keys(entity)
        stored, current = self._stored(entity)
        parts = tuple(ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in stored)
        records: list[MetadataRecord] = []
        named: set[str] = set()
        for key, value in changes:
            if key in named:
                raise InvalidRequestError(f"Duplicate quota key {key} for the entity {dict(entity)}")
            named.add(key)
            if value is None:
                if key in current:
                    records.append(ClientQuotaRecord(entity=parts, key=key, value=0.0, remove=True))
                continue
            _check_value(valid_keys, key, value)
            if current.get(key) != value:
                records.append(ClientQuotaRecord(entity=parts, key=key, value=value, remove=False))
        return records

    def _stored(self, entity: QuotaEntity) -> tuple[QuotaEntity, Mapping[str, float]]:
        """The entity as the metadata has it, and its quotas: a request may name user and client id the other way."""
        quotas = self._state.image.client_quotas
        for order in (entity, entity[::-1]):
            if order in quotas:
                return order, quotas[order]
        return entity, {}


def _valid_keys(entity: QuotaEntity) -> Collection[str]:
    """The keys such an entity may have; InvalidRequestError for one that cannot be."""
    if not entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    kinds = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if kinds.count(kind) > 1:
            raise InvalidRequestError(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP not in kinds:
        return CLIENT_KEYS
    if len(kinds) > 1:
        raise InvalidRequestError("Invalid quota entity combination: ip does not go with user or client-id")
    _check_address(entity[0][1])
    return ADDRESS_KEYS


def _check_address(name: str | None) -> None:
    """An address, or what may be the name of a host: the controller looks nothing up."""
    if name is None or (_HOST_NAME.fullmatch(name) and not re.fullmatch(r"[0-9.]+", name)):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.") from None


def _check_value(valid_keys: Collection[str], key: str, value: float) -> None:
    if key not in valid_keys:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if math.isnan(value) or value <= 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    whole = _WHOLE_NUMBERS.get(key)
    if whole is not None and (math.isinf(value) or abs(math.floor(value + _ROUNDING) - value) > _ROUNDING):
        raise InvalidRequestError(f"Configuration {key} must be {whole} value")
