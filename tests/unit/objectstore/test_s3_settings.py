"""S3Settings: names of buckets, and secrets that are not shown."""

from broker.objectstore.s3_settings import S3Settings, is_directory_bucket


def test_a_directory_bucket_is_told_by_its_name() -> None:
    assert is_directory_bucket("wal--use1-az4--x-s3")
    assert not is_directory_bucket("wal")


def test_keys_are_not_shown() -> None:
    settings = S3Settings(endpoint_url="http://127.0.0.1:1", access_key="AK", secret_key="very secret")
    assert "secret" not in repr(settings) and "AK" not in repr(settings)
    assert "http://127.0.0.1:1" in repr(settings)
