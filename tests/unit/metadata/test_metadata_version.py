from broker.metadata.metadata_version import MetadataVersion, is_metadata_changed_between


def test_levels_and_releases() -> None:
    assert [int(level) for level in MetadataVersion] == list(range(7, 30))
    assert MetadataVersion(25).release == "4.0-IV3"
    assert MetadataVersion(29).release == "4.2-IV1"
    assert MetadataVersion(7).release == "3.3-IV3"


def test_what_levels_can_do() -> None:
    assert next(level for level in MetadataVersion if level.is_directory_assignment_supported) == 17
    assert next(level for level in MetadataVersion if level.is_eligible_leader_replicas_supported) == 23
    assert [level for level in MetadataVersion if level.is_leader_epoch_bump_on_shrink_needed][-1] == 11


def test_where_metadata_changed() -> None:
    assert not is_metadata_changed_between(23, 29)
    assert is_metadata_changed_between(22, 29)
    assert is_metadata_changed_between(29, 22)
    assert not is_metadata_changed_between(20, 22)
    assert not is_metadata_changed_between(17, 17)
