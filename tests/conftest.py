"""What tests need from outside is checked once: missing tools skip with a sentence, or fail where they are required.

`WHERRY_REQUIRE=java,kcat,s3,browser,promtool,containers,checkout` (set by continuous integration) turns skips of these
markers into failures.

Hypothesis judges no time: how long an example takes is how busy the machine is.  Examples are a function of the test;
`--hypothesis-profile=exploring` draws others each time, or those of `--hypothesis-seed`.
"""

import os
import shutil
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests.support import chromium, docker_tools, java_tools, prometheus_tools, readme, s3_tools

NEEDS: dict[str, Callable[[], str | None]] = {
    "java": java_tools.why_not_available,
    "browser": chromium.why_not_available,
    "promtool": prometheus_tools.why_not_available,
    "s3": s3_tools.why_not_available,
    "containers": docker_tools.why_not_available,
    "checkout": readme.why_no_fresh_checkout,
    "kcat": lambda: None if shutil.which("kcat") else "kcat is missing: install Debian's package kcat",
}

hypothesis.settings.register_profile(
    "exploring",
    derandomize=False,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.register_profile("repeatable", hypothesis.settings.get_profile("exploring"), derandomize=True)
hypothesis.settings.load_profile("repeatable")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Examples would have constants in them of whatever modules are loaded: any change would make other examples."""
    if hypothesis.settings().derandomize:
        # It is no public name: should it go, this fails.
        pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    required = set(filter(None, os.environ.get("WHERRY_REQUIRE", "").split(",")))
    wanted = {
        marker for marker in NEEDS if marker in required or any(item.get_closest_marker(marker) for item in items)
    }
    reasons = {marker: reason for marker in wanted if (reason := NEEDS[marker]()) is not None}
    for marker in required & reasons.keys():
        raise pytest.UsageError(f"tests marked {marker} are required here, but {reasons[marker]}")
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
