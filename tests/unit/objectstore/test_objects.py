"""Sizes of parts."""

from broker.objectstore.objects import PARTS_MAX, PartSizes


def test_parts_are_no_more_than_s3_takes() -> None:
    sizes = PartSizes(part_size_bytes=1000)
    assert sizes.part_size_for(1) == sizes.part_size_for(1000 * PARTS_MAX) == 1000
    assert sizes.part_size_for(1000 * PARTS_MAX + 1) == 1001
