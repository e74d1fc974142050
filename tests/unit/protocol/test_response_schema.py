import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

import pytest

from broker.common.errors import ErrorCode
from broker.protocol import response_schema
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import decode_response, encode_response
from broker.protocol.response_schema import RequestSchema, ResponseSchema


def list_offsets_answer(version: int) -> object:
    schema = ResponseSchema.of(ApiKey.LIST_OFFSETS, version)
    partition = schema.ListOffsetsPartitionResponse(
        partition_index=1, error_code=ErrorCode.none, timestamp=-1, offset=5, leader_epoch=3
    )
    topic = schema.ListOffsetsTopicResponse(name="t", partitions=(partition,))
    return schema.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))


@pytest.mark.parametrize("version", range(1, 12))
def test_one_answer_in_every_version(version: int) -> None:
    entity = list_offsets_answer(version)
    (encoded,) = encode_response(ApiKey.LIST_OFFSETS, version, 9, entity)
    assert decode_response(ApiKey.LIST_OFFSETS, version, encoded[4:]) == (9, entity)


def test_fields_the_version_lacks_are_dropped() -> None:
    assert not hasattr(list_offsets_answer(3).topics[0].partitions[0], "leader_epoch")  # type: ignore[attr-defined]
    assert list_offsets_answer(4).topics[0].partitions[0].leader_epoch == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [1, 11])
def test_a_field_no_version_has_is_a_type_error(version: int) -> None:
    with pytest.raises(TypeError, match="ofset"):
        ResponseSchema.of(ApiKey.LIST_OFFSETS, version).ListOffsetsPartitionResponse(
            partition_index=1, error_code=ErrorCode.none, timestamp=-1, offset=5, ofset=6
        )


def test_a_class_the_version_lacks_builds_nothing() -> None:
    schema = ResponseSchema.of(ApiKey.PRODUCE, 9)
    assert schema.LeaderIdAndEpoch(leader_id=1, leader_epoch=2) is None
    with pytest.raises(TypeError, match="leader"):
        schema.LeaderIdAndEpoch(leader=1)


def test_a_class_no_version_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="ListOffsets has no class Lisst"):
        ResponseSchema.of(ApiKey.LIST_OFFSETS, 1).Lisst  # noqa: B018


def test_the_newest_version_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def entities(kind: str, schema_name: str, version: int) -> dict[str, type]:
        read.append(version)
        return all_entities(kind, schema_name, version)

    all_entities = response_schema._entities
    monkeypatch.setattr(response_schema, "_entities", entities)
    schema = ResponseSchema("response", ApiKey.METADATA, 4)
    schema.read_newest()
    schema.read_newest()
    schema.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name="t",
        is_internal=False,
        partitions=(),
        topic_id=None,  # from 10 on
    )
    assert read == [4, 13]
    with pytest.raises(TypeError, match="topic_ids"):
        schema.MetadataResponseTopic(topic_ids=None)
    assert sorted(read[1:]) == list(range(14)), "each once"


def test_a_schema_is_made_once() -> None:
    assert ResponseSchema.of(ApiKey.FETCH, 12) is ResponseSchema.of(ApiKey.FETCH, 12)


def test_requests_of_ours_are_written_the_same_way() -> None:
    schema = RequestSchema.of(ApiKey.METADATA, 0)
    request = schema.MetadataRequest(
        topics=(schema.MetadataRequestTopic(name="t", topic_id=None),), allow_auto_topic_creation=True
    )
    assert request.topics[0].name == "t"
    assert not hasattr(request, "allow_auto_topic_creation")


def test_two_threads_may_load_the_classes_of_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python gives up an import when another thread holds the module and waits for its package, held by this one."""
    package = "kio.schema.push_telemetry.v0"  # of no other test
    for name in (package, f"{package}.request", f"{package}.response"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    failures: list[BaseException] = []

    def load() -> None:
        try:
            RequestSchema("request", ApiKey.PUSH_TELEMETRY, 0)
        except BaseException as error:
            failures.append(error)

    other = threading.Thread(target=load)

    class Finder(importlib.abc.MetaPathFinder):
        """In the midst of the package's import the other thread begins with its module."""

        def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
            if fullname != package:
                return None
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)
            assert spec is not None
            monkeypatch.setattr(spec.loader, "create_module", self.create_module)
            return spec

        def create_module(self, spec: ModuleSpec) -> None:
            if other.ident is None:
                other.start()
                other.join(0.2)  # it waits for this import now

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    ResponseSchema("response", ApiKey.PUSH_TELEMETRY, 0)
    other.join()
    assert failures == []
