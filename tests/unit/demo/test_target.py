import pytest

from broker.config.setting import ConfigError
from broker.demo.target import PlannedBreak, Target, TargetKind
from tests.unit.demo.demo_world import layout

KNOWN = layout().targets()


@pytest.mark.parametrize(
    ("text", "planned"),
    [
        ("bucket-a", PlannedBreak(Target(TargetKind.BUCKET, "a"), 0, None)),
        ("broker-3:10", PlannedBreak(Target(TargetKind.BROKER, "3"), 10, None)),
        ("zone-c:1.5:20", PlannedBreak(Target(TargetKind.ZONE, "c"), 1.5, 20)),
    ],
)
def test_what_may_be_broken_and_when(text: str, planned: PlannedBreak) -> None:
    assert PlannedBreak.parse(text, KNOWN) == planned


@pytest.mark.parametrize("text", ["", "bucket", "bucket-d", "broker-4", "zone-a:", "zone-a:x", "zone-a:1:2:3"])
def test_what_cannot_be_broken_is_told_with_what_can(text: str) -> None:
    with pytest.raises(ConfigError, match=r"valid values are bucket-a, .*, broker-1, .*, zone-a, .*zone-c"):
        PlannedBreak.parse(text, KNOWN)


def test_each_target_has_a_key_of_its_own() -> None:
    keys = [target.key for target in layout(brokers=9).targets()]
    assert keys == ["a", "b", "c", *map(str, range(1, 10)), "A", "B", "C"]
