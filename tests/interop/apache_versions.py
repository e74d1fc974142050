"""The versions of Apache Kafka whose controllers our brokers are tried with: the oldest and the newest there is."""

import os
from typing import Final

import pytest

from tests.support import apache_controllers, java_tools

OLDEST: Final = "4.0.2"
APACHE_VERSIONS: Final = (OLDEST, java_tools.VERSION)


def need(version: str) -> None:
    """Skip the test, or fail it where Java is required, when this version was not collected."""
    reason = apache_controllers.why_not_available(version)
    if reason is not None:
        (pytest.fail if "java" in os.environ.get("WHERRY_REQUIRE", "").split(",") else pytest.skip)(reason)
