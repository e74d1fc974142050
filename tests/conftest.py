"""What tests need from outside is checked once: missing tools skip with a sentence, or fail where they are required.

`WHERRY_REQUIRE=java,kcat,s3` (set by continuous integration) turns the skips of these markers into failures.
"""

import os
import shutil
from collections.abc import Callable

import pytest

from tests.support import java_tools, s3_tools

NEEDS: dict[str, Callable[[], str | None]] = {
    "java": java_tools.why_not_available,
    "s3": s3_tools.why_not_available,
    "kcat": lambda: None if shutil.which("kcat") else "kcat is missing: install Debian's package kcat",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    required = set(filter(None, os.environ.get("WHERRY_REQUIRE", "").split(",")))
    reasons = {marker: reason for marker, check in NEEDS.items() if (reason := check()) is not None}
    for marker in required & reasons.keys():
        raise pytest.UsageError(f"tests marked {marker} are required here, but {reasons[marker]}")
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
