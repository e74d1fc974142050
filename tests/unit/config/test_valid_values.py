import pytest

from broker.config.setting import Valid
from broker.config.valid_values import BUCKET_URL, HTTP_URL, NON_EMPTY


@pytest.mark.parametrize(
    ("valid", "good", "bad"),
    [
        (
            BUCKET_URL,
            ("s3://a-bucket", "s3://b/", "file:///var/x", "file:///"),
            ("bucket", "s3://", "s3://b/p", "gs://b"),
        ),
        (HTTP_URL, ("http://127.0.0.1:8333", "https://s3"), ("127.0.0.1:8333", "https://", "ftp://x")),
        (NON_EMPTY, ("x",), ("",)),
    ],
)
def test_what_is_accepted(valid: Valid[str], good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    assert [text for text in good + bad if valid.check(text)] == list(good)
