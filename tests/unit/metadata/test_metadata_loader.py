from uuid import UUID

import pytest

from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_loader import MetadataLoader
from broker.metadata.metadata_records import to_records
from broker.schemas.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from tests.unit.metadata.image_support import LEVEL, OTHER, full_image, topic_record

BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()


def test_a_batch_moves_the_image() -> None:
    loader = MetadataLoader()
    loaded = loader.load_batch([LEVEL, topic_record()], 1, 5)
    assert loaded is not None
    assert loaded.image is loader.image
    assert (loader.image.offset, loader.image.epoch, loader.end_offset) == (1, 5, 2)
    assert list(loaded.delta.topics_delta.changed_topics) == [topic_record().topic_id]


def test_a_control_batch_is_one_without_records() -> None:
    loader = MetadataLoader()
    loaded = loader.load_batch((), 0, 5)
    assert loaded is not None
    assert (loaded.image.offset, loaded.delta.topics_delta.is_empty) == (0, True)


def test_a_transaction_is_published_when_it_ends() -> None:
    loader = MetadataLoader()
    loader.load_batch([NoOpRecord()], 0, 1)
    assert loader.load_batch([BEGIN, LEVEL], 2, 1) is None
    assert loader.load_batch([topic_record()], 3, 1) is None
    assert (loader.image.offset, loader.end_offset, loader.is_in_transaction) == (0, 4, True)
    loaded = loader.load_batch([END], 4, 1)
    assert loaded is not None
    assert (loaded.image.offset, loaded.image.features.metadata_version) == (4, 29)
    assert list(loaded.image.topics.by_name) == ["t"]
    assert not loader.is_in_transaction


def test_an_aborted_transaction_moves_the_offset_alone() -> None:
    loader = MetadataLoader()
    loader.load_batch([BEGIN, topic_record()], 1, 1)
    loaded = loader.load_batch([ABORT, LEVEL], 3, 1)
    assert loaded is not None
    assert (len(loaded.image.topics), loaded.image.features.metadata_version, loaded.image.offset) == (0, 29, 3)


def test_records_in_front_of_a_transaction_in_the_same_batch_are_published() -> None:
    loader = MetadataLoader()
    loaded = loader.load_batch([LEVEL, BEGIN, topic_record(), topic_record("u", OTHER)], 3, 1)
    assert loaded is not None
    assert (loaded.image.offset, loaded.image.features.metadata_version, len(loaded.image.topics)) == (0, 29, 0)
    loaded = loader.load_batch([END], 4, 1)
    assert loaded is not None
    assert list(loaded.image.topics.by_name) == ["t", "u"]


def test_a_whole_transaction_in_one_batch() -> None:
    loaded = MetadataLoader().load_batch([BEGIN, LEVEL, topic_record(), END], 3, 1)
    assert loaded is not None
    assert (loaded.image.offset, list(loaded.image.topics.by_name)) == (3, ["t"])


@pytest.mark.parametrize("records", [[END], [ABORT], [BEGIN, BEGIN], [topic_record(), topic_record()]])
def test_faults_change_nothing(records: list[object]) -> None:
    loader = MetadataLoader()
    with pytest.raises(MetadataFault):
        loader.load_batch(records, 1, 1)  # type: ignore[arg-type]
    assert loader.image is MetadataImage.EMPTY
    assert (loader.end_offset, loader.is_in_transaction) == (0, False)


def test_13_a_snapshot_replaces_everything_and_tells_the_difference() -> None:
    loader = MetadataLoader()
    gone = UUID(int=0xC0C0)
    loader.load_batch([LEVEL, topic_record("gone", gone)], 1, 1)
    loader.load_batch([BEGIN, topic_record()], 3, 1)
    image = full_image()
    loaded = loader.load_snapshot(to_records(image, 29), 100, 1)
    assert loaded.image == image
    assert (loader.end_offset, loader.is_in_transaction) == (101, False)
    assert loaded.delta.topics_delta.deleted_topics == {gone: "gone"}
    assert loaded.delta.changed_features == {"group.version": 1}
