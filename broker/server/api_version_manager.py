"""What a listener tells its clients it can do (Kafka's ApiVersionManager): versions by key, and features."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import encode_response
from broker.protocol.response_schema import ResponseSchema
from broker.server.api_registry import ApiHandler, ApiRegistry

VersionRange = tuple[int, int]

UNKNOWN_EPOCH: Final = -1
FIRST_WITH_ALL_FEATURES: Final = 4  # KAFKA-17492: a supported feature with minimum 0 crashes clients that ask for less
_NOTHING: Final[Mapping[str, int]] = {}


class FinalizedFeatures(NamedTuple):
    """The cluster's feature levels; `epoch` grows with each change, and -1 means that nothing is known yet."""

    epoch: int
    levels: Mapping[str, int]


class FeaturesProvider(Protocol):
    """Where the features come from: the metadata cache on a broker, the controller's state on a controller."""

    def supported_features(self) -> Mapping[str, VersionRange]: ...
    def finalized_features(self) -> FinalizedFeatures: ...


class NoFeatures:
    """A provider for listeners that know of none."""

    def supported_features(self) -> Mapping[str, VersionRange]:
        return {}

    def finalized_features(self) -> FinalizedFeatures:
        return FinalizedFeatures(UNKNOWN_EPOCH, _NOTHING)


ControllerVersions = Callable[[], Mapping[int, VersionRange] | None]
"""What the leading controller offers, by key; None while it is not known.  The same object until it changes."""


class ApiVersionManager:
    """Answers ApiVersions from bytes it made once per version and change of features."""

    def __init__(
        self,
        registry: ApiRegistry,
        features: FeaturesProvider | None = None,
        controller_versions: ControllerVersions = lambda: None,
    ) -> None:
        self._registry = registry
        self._features: FeaturesProvider = features or NoFeatures()
        self._controller_versions = controller_versions
        self._made_for: tuple[int, object] | None = None
        self._bodies: dict[int, bytes] = {}  # at most one per listed version of ApiVersions

    def versions(self) -> dict[int, VersionRange]:
        """What is told to clients: ours, and for what the controller does, what it offers as well."""
        controller = self._controller_versions()
        ranges = {}
        for handler in self._registry:
            bounds = _advertised(handler, controller)
            if bounds is not None:
                ranges[int(handler.api_key)] = bounds
        return ranges

    def response(self, version: int, correlation_id: int) -> list[Buffer]:
        """A whole answer to a listed version."""
        finalized = self._features.finalized_features()
        made_for = (finalized.epoch, self._controller_versions())
        if self._made_for is None or self._made_for[0] != made_for[0] or self._made_for[1] is not made_for[1]:
            self._bodies.clear()
            self._made_for = made_for
        body = self._bodies.get(version)
        if body is None:
            body = self._bodies[version] = self._body(version, finalized)
        return [_with_header(correlation_id, body)]

    def _body(self, version: int, finalized: FinalizedFeatures) -> bytes:
        schema = ResponseSchema.of(ApiKey.API_VERSIONS, version)
        supported = {
            name: bounds
            for name, bounds in sorted(self._features.supported_features().items())
            if bounds[0] > 0 or version >= FIRST_WITH_ALL_FEATURES
        }
        is_known = finalized.epoch != UNKNOWN_EPOCH
        entity = schema.ApiVersionsResponse(
            error_code=ErrorCode.none,
            api_keys=_api_keys(schema, self.versions()),
            throttle_time=NO_THROTTLE,
            supported_features=tuple(
                schema.SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in supported.items()
            ),
            finalized_features_epoch=finalized.epoch,
            finalized_features=tuple(
                schema.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(finalized.levels.items())
                if is_known
            ),
        )
        return _body_of(version, entity)

    def unsupported_version(self, correlation_id: int) -> list[Buffer]:
        """The answer to a version from the future: a body of version 0 that says which versions there are (KIP-511)."""
        schema = ResponseSchema.of(ApiKey.API_VERSIONS, 0)
        handler = self._registry.get(ApiKey.API_VERSIONS)
        assert handler is not None, "a listener that answers ApiVersions lists it"
        own = {int(ApiKey.API_VERSIONS): (handler.versions.start, handler.versions[-1])}
        entity = schema.ApiVersionsResponse(
            error_code=ErrorCode.unsupported_version, api_keys=_api_keys(schema, own), throttle_time=NO_THROTTLE
        )
        return [_with_header(correlation_id, _body_of(0, entity))]

    def invalid_request(self, version: int, correlation_id: int) -> list[Buffer]:
        """The answer to a client whose software name or version is not allowed."""
        schema = ResponseSchema.of(ApiKey.API_VERSIONS, version)
        entity = schema.ApiVersionsResponse(
            error_code=ErrorCode.invalid_request, api_keys=(), throttle_time=NO_THROTTLE
        )
        return [_with_header(correlation_id, _body_of(version, entity))]


def _advertised(handler: ApiHandler, controller: Mapping[int, VersionRange] | None) -> VersionRange | None:
    low, high = handler.advertised_from, handler.versions[-1]
    if handler.is_forwarded and controller is not None:
        theirs = controller.get(handler.api_key)
        if theirs is None:
            return None
        low, high = max(low, theirs[0]), min(high, theirs[1])
    return (low, high) if low <= high else None


def _api_keys(schema: ResponseSchema, ranges: Mapping[int, VersionRange]) -> tuple[object, ...]:
    return tuple(
        schema.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()
    )


def _body_of(version: int, entity: object) -> bytes:
    """The encoding without length and header, which is of version 0 in every version (KIP-511)."""
    return b"".join(encode_response(ApiKey.API_VERSIONS, version, 0, entity))[8:]


def _with_header(correlation_id: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big", signed=True) + body
