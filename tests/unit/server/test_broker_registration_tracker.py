from uuid import UUID

import pytest

from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import FeatureLevelRecord, RegisterBrokerRecord
from broker.server.broker_registration_tracker import BrokerRegistrationTracker

DIRECTORY = UUID(int=1 << 100)


@pytest.mark.parametrize(
    ("level", "epoch", "log_dirs", "expected"),
    [
        (16, 5, (), 0),  # nothing to keep them in
        (17, 5, (), 1),
        (29, 5, (), 1),
        (29, 5, (DIRECTORY,), 0),
        (29, 4, (), 0),  # another process of our id
    ],
)
def test_a_registration_without_directories_is_made_again_once_they_are_kept(
    level: int, epoch: int, log_dirs: tuple[UUID, ...], expected: int
) -> None:
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    delta.replay(RegisterBrokerRecord(broker_id=1, incarnation_id=UUID(int=9), broker_epoch=epoch, log_dirs=log_dirs))
    asked: list[None] = []
    tracker = BrokerRegistrationTracker(1, lambda: 5, lambda: asked.append(None))
    tracker.on_metadata(delta, MetadataImage.EMPTY)
    assert asked == []
    tracker.on_metadata(delta, delta.apply(10, 1))
    assert len(asked) == expected
