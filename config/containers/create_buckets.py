"""create_buckets.py URL BUCKET...: make the buckets that are not there yet, and wait until each takes an object.

Run in the broker's image, which has botocore; keys come from the environment.  Nothing is ever removed.
"""

import contextlib
import sys
import time

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

WAIT_S = 90
PROBE = "probe-of-create-buckets"
# The addresses of virtual hosts need names for each bucket; one attempt, for the loop below repeats.
CONFIG = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=3, read_timeout=10)


def main(url, *buckets):
    client = botocore.session.get_session().create_client(
        "s3", endpoint_url=url, region_name="us-east-1", config=CONFIG
    )
    deadline = time.monotonic() + WAIT_S
    for bucket in buckets:
        while (reason := why_not_usable(client, bucket)) is not None:
            if time.monotonic() > deadline:
                sys.exit(f"bucket {bucket}: {reason}")
            time.sleep(0.3)
        print(f"bucket {bucket} is there", flush=True)


def why_not_usable(client, bucket):
    """None once it takes an object: a server may know the bucket before it has room for one."""
    try:
        ensure(client, bucket)
        client.put_object(Bucket=bucket, Key=PROBE, Body=b"")
        client.delete_object(Bucket=bucket, Key=PROBE)
    except (BotoCoreError, ClientError) as error:
        return error
    return None


def ensure(client, bucket):
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise
        with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=bucket)


if __name__ == "__main__":
    main(*sys.argv[1:])
