import pytest

from broker.common.errors import InvalidRequestError, InvalidUpdateVersionError
from broker.controller.feature_control_manager import FeatureUpdate, UpgradeType
from broker.metadata.broker_registration import VersionRange
from broker.schemas.cluster_metadata import FeatureLevelRecord
from tests.unit.controller.controller_support import ControlWorld

ELR = "eligible.leader.replicas.version"


def update(world: ControlWorld, *updates: FeatureUpdate, validate_only: bool = False) -> None:
    world.apply(world.features.update_features(updates, validate_only=validate_only))


def test_a_feature_is_finalized_and_removed() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    update(world, FeatureUpdate(ELR, 1))
    assert world.records == [FeatureLevelRecord(name=ELR, feature_level=1)]
    assert world.image.features.level(ELR) == 1
    update(world, FeatureUpdate(ELR, 0, UpgradeType.SAFE_DOWNGRADE))
    assert ELR not in world.image.features.finalized


def test_validation_alone_and_no_change_write_nothing() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    update(world, FeatureUpdate(ELR, 1), validate_only=True)
    assert world.records == []
    update(world, FeatureUpdate("metadata.version", 29))
    assert world.records == []


def test_metadata_version_goes_up_and_down_where_no_metadata_is_lost() -> None:
    world = ControlWorld(metadata_version=25)
    world.start_brokers(1)
    update(world, FeatureUpdate("metadata.version", 29))
    assert world.image.features.metadata_version == 29
    update(world, FeatureUpdate("metadata.version", 23, UpgradeType.SAFE_DOWNGRADE))
    assert world.image.features.metadata_version == 23
    with pytest.raises(InvalidUpdateVersionError, match="might delete metadata"):
        update(world, FeatureUpdate("metadata.version", 22, UpgradeType.SAFE_DOWNGRADE))


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (FeatureUpdate("unknown.feature", 1), "does not support this feature"),
        (FeatureUpdate("metadata.version", 30), "Local controller only supports versions 7-29"),
        (FeatureUpdate("metadata.version", 0), "Local controller only supports"),
        (FeatureUpdate("metadata.version", 28), "without setting the upgrade type"),
        (FeatureUpdate("metadata.version", 29, UpgradeType.UNKNOWN), "the given upgrade type"),
        (FeatureUpdate(ELR, -1), "less than 0"),
        (FeatureUpdate("group.version", 1), "Broker 1 only supports versions 0-0"),
        (FeatureUpdate("kraft.version", 1), "Local controller only supports versions 0-0"),
    ],
)
def test_impossible_updates(wanted: FeatureUpdate, reason: str) -> None:
    world = ControlWorld()
    world.register(1)  # fenced brokers count, too
    with pytest.raises(InvalidUpdateVersionError, match=reason):
        update(world, wanted)


def test_all_or_none_and_dependencies() -> None:
    world = ControlWorld(metadata_version=22)
    world.register(1)
    with pytest.raises(InvalidUpdateVersionError, match=r"depends on metadata\.version at level 23"):
        update(world, FeatureUpdate(ELR, 1))
    update(world, FeatureUpdate("metadata.version", 29), FeatureUpdate(ELR, 1))
    assert world.image.features.finalized == {"metadata.version": 29, ELR: 1}
    with pytest.raises(InvalidRequestError):
        update(world, FeatureUpdate(ELR, 1), FeatureUpdate(ELR, 0))


def test_a_dead_broker_holds_back_an_upgrade() -> None:
    world = ControlWorld(metadata_version=25)
    world.register(1, features={"metadata.version": VersionRange(7, 27)})
    with pytest.raises(InvalidUpdateVersionError, match="Broker 1 only supports versions 7-27"):
        update(world, FeatureUpdate("metadata.version", 29))
