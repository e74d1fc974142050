from broker.replication.bucket_follower import BucketFollower, MakeBucketFollower
from tests.unit.replication.bucket_world import FakeBucketFollower


def test_the_port_is_what_the_fake_of_these_tests_has() -> None:
    make: MakeBucketFollower = FakeBucketFollower  # by the type checker
    operations = {name for name in vars(BucketFollower) if not name.startswith("_")}
    assert operations == {"answered", "truncated", "begin_reset", "end_reset", "stop"}
    assert all(callable(getattr(make, name)) for name in operations)
