"""Run a peer's own test suite against our broker and compare with the list of what passes there.

    python -m tests.suites.run_suite aiokafka DIRECTORY [--bootstrap HOST:PORT] [--only TEXT] [--record]

DIRECTORY is a checkout of the suite at the version that tests/suites/expected names; its tests are copied, nothing in
it is changed.  The client comes from the Python registry; librdkafka's checkout must hold its test runner already.
Without --bootstrap a broker of ours is started; with it the broker there is judged, and nothing is compared.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.suites import librdkafka
from tests.suites.expected_list import PASS, ExpectedList
from tests.suites.librdkafka import CACHE, Outcomes
from tests.support.broker_process import BrokerProcess

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Suite:
    """One peer's suite: the settings it wants of a broker, and how it is run against one."""

    settings: Mapping[str, str]
    run: Callable[[Path, str, str], Outcomes]  # checkout, bootstrap, text that names must contain
    is_ready: Callable[[Path], bool] = lambda directory: (directory / "tests").is_dir()
    complaint: str = "it has no tests"


def run_aiokafka(checkout: Path, bootstrap: str, only: str) -> Outcomes:
    python = client_environment("aiokafka", "aiokafka==0.14.0", "pytest-asyncio", "pytest-mock", "async-timeout", "lz4")
    run = fresh_copy("aiokafka", checkout / "tests", checkout / "pyproject.toml")
    shutil.copy(HERE / "aiokafka_conftest.py", run / "tests" / "conftest.py")
    environment = {"BOOTSTRAP": bootstrap, "KAFKA_VERSION": "4.0.0"}
    return run_pytest(python, run, environment, only, "-W", "default", "--timeout=90", "tests")


def run_kafka_python(checkout: Path, bootstrap: str, only: str) -> Outcomes:
    codecs = ("zstandard", "lz4", "python-snappy", "crc32c", "xxhash")
    python = client_environment("kafka-python", "kafka-python==3.0.12", "pytest-mock", "py", *codecs)
    run = fresh_copy("kafka-python", checkout / "test", checkout / "pyproject.toml")
    environment = {
        "PYTHONPATH": str(HERE),
        "KAFKA_ROOT": str(run),
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": "4.3",  # what the client infers from our ranges of versions, and from Apache Kafka 4.3's
    }
    options = ("--timeout=60", "--timeout-method=signal", "--ignore=test/integration/test_ssl_integration.py")
    return run_pytest(python, run, environment, only, "-p", "ext_kafka_python", *options, "test/integration")


SUITES = {
    "aiokafka": Suite({"num.partitions": "2", "node.id": "0"}, run_aiokafka),
    "kafka-python": Suite(
        {"num.partitions": "4", "node.id": "0"}, run_kafka_python, lambda directory: (directory / "test").is_dir()
    ),
    "librdkafka": Suite(
        # Some of its tests expect consumers that start together to be in one generation.
        {"num.partitions": "4", "group.initial.rebalance.delay.ms": "500"},
        librdkafka.run,
        lambda directory: (directory / "tests" / "test-runner").is_file(),
        "its tests/test-runner is missing",
    ),
}


def client_environment(name: str, *packages: str) -> Path:
    """The Python of a virtual environment with the suite's client, made once."""
    directory = CACHE / f"venv-{name}"
    stamp = directory / ".installed"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(directory, with_pip=True, clear=True)
        pip = [directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        subprocess.run([*pip, "pytest", "pytest-timeout", "cramjam", *packages], check=True)
        stamp.write_text(wanted)
    return directory / "bin" / "python"


def fresh_copy(name: str, *sources: Path) -> Path:
    run = CACHE / f"run-{name}"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, run / source.name)
        else:
            shutil.copy(source, run)
    return run


def run_pytest(python: Path, directory: Path, environment: Mapping[str, str], only: str, *options: str) -> Outcomes:
    report = directory / "report.xml"
    command = [str(python), "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--tb=short"]
    command += [f"--junitxml={report}", *options, *(("-k", only) if only else ())]
    subprocess.run(command, cwd=directory, env={**os.environ, **environment})
    outcomes: Outcomes = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        failed, skipped = kinds & {"failure", "error"}, "skipped" in kinds
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = (
            "failed" if failed else "skipped" if skipped else "passed"
        )
    return outcomes


def run_against_ours(suite: Suite, checkout: Path, only: str) -> Outcomes:
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory), suite.settings) as broker:
        outcomes = suite.run(checkout, broker.bootstrap, only)
    if suite.run is librdkafka.run:
        settings = {**suite.settings, "auto.create.topics.enable": "false"}
        with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory), settings) as broker:
            outcomes |= librdkafka.run(checkout, broker.bootstrap, only, scenario="noautocreate")
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a peer's own test suite against our broker.")
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("checkout", nargs="?", default="", help="a checkout of the suite at the version of its list")
    parser.add_argument("--bootstrap", help="HOST:PORT of a running broker to judge instead of ours")
    parser.add_argument("--only", default="", help="only tests whose name contains this text")
    parser.add_argument("--scenario", default="default", help="of librdkafka's tests, together with --bootstrap")
    parser.add_argument("--record", action="store_true", help="add what passes now to the list")
    arguments = parser.parse_args()
    suite, expected = SUITES[arguments.suite], ExpectedList(arguments.suite)
    checkout = Path(arguments.checkout).expanduser().resolve()
    if not arguments.checkout:
        print(f"Skipped: SUITE_DIR must name a checkout of {expected.title}.")
        return 0
    if not suite.is_ready(checkout):
        print(f"{checkout} is not usable as {expected.title}: {suite.complaint}.")
        return 1
    if arguments.bootstrap:
        more = (arguments.scenario,) if suite.run is librdkafka.run else ()
        outcomes = suite.run(checkout, arguments.bootstrap, arguments.only, *more)
        for name in sorted(name for name, outcome in outcomes.items() if outcome != "passed"):
            print(outcomes[name], name)
        print(f"{list(outcomes.values()).count('passed')} of {len(outcomes)} passed")
        return 0
    outcomes = run_against_ours(suite, checkout, arguments.only)
    passed = {name for name, outcome in outcomes.items() if outcome == "passed"}
    missing = [name for name in expected.names(PASS) if name not in passed and arguments.only in name]
    if arguments.record:
        expected.record(passed)
    for name in sorted(passed - set(expected.names(PASS))):
        print(f"passes and is not in the list: {name}")
    for name in missing:
        print(f"NO LONGER PASSES ({outcomes.get(name, 'not run')}): {name}")
    print(f"{arguments.suite}: {len(passed)} passed, {len(missing)} of the list's missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
