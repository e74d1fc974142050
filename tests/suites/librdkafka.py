"""librdkafka's own tests that use a broker, run by the test runner of a checkout that has it."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support import java_tools

CACHE = java_tools.ROOT / ".cache" / "suites"
TEST_TIMEOUT_S = 400
SHARE_CONSUMERS_FROM = 170  # numbers from here on need share groups (KIP-932)
# These do nothing in quick mode.
NOT_QUICK = {"0018", "0019", "0026", "0045", "0050", "0061", "0082", "0089", "0102", "0122", "0132"}
# One part of these fails on any broker, the first for want of an authorizer, and would hide what follows.
SPLIT = {"0081_admin": "0081-admin.c", "0089_max_poll_interval": "0089-max_poll_interval.c"}

Outcomes = dict[str, str]  # name of a test -> passed, failed or skipped


def run(checkout: Path, bootstrap: str, only: str, scenario: str = "default") -> Outcomes:
    """Each number, and each part of those that are split, in a process of its own: a failed test may take others along.

    `scenario` is what the broker does with unknown topics: `default` creates them, `noautocreate` does not.
    """
    work = CACHE / "run-librdkafka"
    work.mkdir(parents=True, exist_ok=True)
    configuration = work / "test.conf"
    configuration.write_text(f"metadata.broker.list={bootstrap}\ntest.topic.random=true\n")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{checkout / 'src'}:{checkout / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(configuration),
        "TEST_KAFKA_VERSION": "4.1.0",
        "TEST_SCENARIO": scenario,
        "BROKERS": bootstrap,
        **_kafka_home(),
    }
    tests = checkout / "tests"
    runs: dict[tuple[str, str], list[str]] = {}
    for name in broker_tests(tests, scenario):
        if only in name:
            runs.setdefault((name[:4], name.partition("/")[2]), []).append(name)
    outcomes: Outcomes = {}
    for (number, part), names in sorted(runs.items()):
        states = _run_number(tests, environment, number, part, work / f"{number}{part}-{scenario}")
        for name in names:
            outcomes[name] = states.get(name.partition("/")[0], "failed")
            print(name, outcomes[name], flush=True)
    return outcomes


def broker_tests(tests: Path, scenario: str) -> Iterator[str]:
    """Tests of the runner's table that want a broker of this scenario, share consumers left out; `test/part` for the
    parts of those that are split."""
    table = (tests / "test.c").read_text().partition("struct test tests[] = {")[2].partition("/* Manual tests */")[0]
    for entry in table.split("_TEST(")[1:]:
        name = re.split(r"\W", entry, maxsplit=1)[0]
        wanted = "noautocreate" if "noautocreate" in entry else "default"
        needs_no_broker = "TEST_F_LOCAL" in entry or name.endswith("_mock")
        if needs_no_broker or wanted != scenario or int(name[:4]) >= SHARE_CONSUMERS_FROM:
            continue
        if name in SPLIT:
            parts = re.findall(r"^static void (do_test\w*)", (tests / SPLIT[name]).read_text(), re.MULTILINE)
            yield from (f"{name}/{part}" for part in sorted(set(parts)))
        else:
            yield name


def _run_number(tests: Path, environment: Mapping[str, str], number: str, part: str, results: Path) -> Outcomes:
    """What became of the tests of a number; those that the report does not tell of have failed."""
    report, log_file = results.with_suffix(".json"), results.with_suffix(".log")
    report.unlink(missing_ok=True)
    command = ["./test-runner", "-L", "-p1", *(() if number in NOT_QUICK else ("-Q",))]
    choice = {"TESTS": number, "TEST_REPORT": str(report), **({"SUBTESTS": f"{part}:"} if part else {})}
    with log_file.open("wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, cwd=tests, env={**environment, **choice}, stdout=log, stderr=log, timeout=TEST_TIMEOUT_S
        )
    text = report.read_text(errors="replace") if report.exists() else ""
    states = re.findall(r'"(\d{4}\w+)": *\{.*?"state": *"(\w+)"', text, re.DOTALL)
    has_run = not part or f"[ {part}:" in log_file.read_text(errors="replace")
    return {name: state.lower() if has_run else "skipped" for name, state in states}


def _kafka_home() -> dict[str, str]:
    """KAFKA_PATH with Kafka's scripts, which some tests call; empty where the jars are missing."""
    if java_tools.why_not_available() is not None:
        return {}
    home = CACHE / "kafka-home"
    environment = {"LIBS": str(java_tools.JARS)}
    subprocess.run([str(java_tools.ROOT / "tests/java/mkwrap.sh"), str(home)], check=True, env=os.environ | environment)
    return {**environment, "KAFKA_PATH": str(home)}
