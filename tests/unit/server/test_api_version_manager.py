from collections.abc import Mapping
from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.requests import Request, decode_response
from broker.server.api_registry import ApiRegistry, handles, handles_frames
from broker.server.api_version_manager import ApiVersionManager, FinalizedFeatures
from broker.server.handlers.api_versions import api_versions
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot
from tests.support.socket_harness import handler_of


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14), advertised_from=0)
def produce(frame: Frame, context: RequestContext, slot: ResponseSlot) -> None: ...


@handles(ApiKey.CREATE_TOPICS, versions=range(2, 8), is_forwarded=True)
async def create_topics(request: Request, context: RequestContext) -> Any: ...


class Features:
    def __init__(self) -> None:
        self.finalized = FinalizedFeatures(-1, {})

    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return {"metadata.version": (7, 25), "group.version": (0, 1)}

    def finalized_features(self) -> FinalizedFeatures:
        return self.finalized


REGISTRY = ApiRegistry(handler_of(each) for each in (api_versions, produce, create_topics))


def answer(manager: ApiVersionManager, version: int) -> Any:
    (response,) = manager.response(version, 9)
    assert int.from_bytes(response[:4], "big") == len(response) - 4
    correlation_id, entity = decode_response(ApiKey.API_VERSIONS, version, bytes(response)[4:])
    assert correlation_id == 9
    return entity


def ranges(entity: Any) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in entity.api_keys}


def test_what_is_registered_is_told_and_produce_from_0() -> None:
    expected = {0: (0, 13), 18: (0, 4), 19: (2, 7)}
    manager = ApiVersionManager(REGISTRY)
    assert manager.versions() == expected
    for version in range(5):
        entity = answer(manager, version)
        assert (entity.error_code, ranges(entity)) == (ErrorCode.none, expected)


def test_what_the_controller_does_is_bounded_by_its_versions() -> None:
    offered: dict[int, tuple[int, int]] | None = {19: (0, 5)}
    manager = ApiVersionManager(REGISTRY, controller_versions=lambda: offered)
    assert ranges(answer(manager, 0))[19] == (2, 5)
    offered = {0: (3, 4)}
    assert 19 not in ranges(answer(manager, 0)), "it lacks the key"
    assert ranges(answer(manager, 0))[0] == (0, 13), "Produce is our own"
    offered = {19: (0, 1)}
    assert 19 not in ranges(answer(manager, 0)), "no version in common"
    offered = None
    assert ranges(answer(manager, 0))[19] == (2, 7), "as long as no controller is known"


def test_features_are_told_from_version_3_on() -> None:
    features = Features()
    manager = ApiVersionManager(REGISTRY, features)
    assert not hasattr(answer(manager, 2), "supported_features")
    old, new = answer(manager, 3), answer(manager, 4)
    assert [each.name for each in old.supported_features] == ["metadata.version"], "KAFKA-17492"
    assert [each.name for each in new.supported_features] == ["group.version", "metadata.version"]
    assert (new.finalized_features, new.finalized_features_epoch) == ((), -1)


def test_answers_are_made_again_when_the_features_change() -> None:
    features = Features()
    manager = ApiVersionManager(REGISTRY, features)
    answer(manager, 4)
    features.finalized = FinalizedFeatures(12, {"metadata.version": 25})
    entity = answer(manager, 4)
    assert entity.finalized_features_epoch == 12
    (feature,) = entity.finalized_features
    assert (feature.name, feature.min_version_level, feature.max_version_level) == ("metadata.version", 25, 25)


def test_the_same_bytes_are_sent_again() -> None:
    manager = ApiVersionManager(REGISTRY, Features())
    first, second = manager.response(3, 1)[0], manager.response(3, 2)[0]
    assert bytes(first)[8:] == bytes(second)[8:]
    assert manager._bodies[3] is manager._bodies[3]
    assert list(manager._bodies) == [3]


def test_no_tag_is_written_at_its_default() -> None:
    """librdkafka before 2.2.0 breaks on an answer that carries all four."""
    (response,) = ApiVersionManager(REGISTRY).response(3, 1)
    assert bytes(response).endswith(b"\0\0\0\0\0"), "no throttle, and no tagged fields"
