"""`wherry demo` with real processes: what it says is what its brokers say, and it leaves nothing behind."""

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import confluent_kafka
import pytest

from broker.demo.figures import COPIED, FALLBACK_PARTITIONS
from tests.support import java_tools, readme
from tests.support.demo_process import DemoProcess
from tests.support.patience import PATIENCE_S, until
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, SeaweedServer

pytestmark = pytest.mark.interop

HEAL_S = 240  # a probe finds the bucket, and then it must serve for ten seconds


def _is_well(line: dict[str, str]) -> bool:
    """Nothing is broken or made up for, and buckets pay."""
    return (
        (line["brokers"], line["broken"], line["fallback_partitions"]) == ("3/3", "-", "0")
        and float(line["fallback_usd_month"]) == 0
        and float(line["orders_mb_s"]) > float(line["break_even_mb_s"]) > 0
        and 0 < float(line["here_usd_month"]) < float(line["classic_usd_month"])
    )


def _is_between(demo: DemoProcess, name: str, metric: str, **labels: str) -> None:
    """A total of a line is between what the brokers say before and after it; a line without one of them has less."""
    before = demo.metrics(metric).total(metric, **labels)
    seen = len(demo.lines)
    line = demo.wait_for_line(lambda line: line["brokers"] == "3/3", "a line of all brokers", since=seen + 1)
    after = demo.metrics(metric).total(metric, **labels)
    assert before <= float(line[name]) <= after


def test_a_broken_bucket_moves_fallback_lag_and_dollars_on_the_board_and_in_the_metrics(tmp_path: Path) -> None:
    typist, terminal = pty.openpty()  # for keys; what is said goes to a file
    with DemoProcess(tmp_path, streams={"stdin": terminal}) as demo:
        assert re.search(r"^Ready after \d+\.\d\d s\.$", demo.output, re.MULTILINE)
        assert len(demo.brokers()) == 3
        demo.wait_for(lambda: _is_well(demo.lines[-1]), "all is well")
        _is_between(demo, "wal_bytes", COPIED, topic="orders", path="wal")
        _is_between(demo, "classic_bytes", COPIED, topic="orders-classic", path="fetch")

        os.write(typist, b"a")
        demo.wait_for(lambda: demo.lines[-1]["broken"] == "bucket-a", "bucket-a is broken")
        demo.wait_for(lambda: float(demo.lines[-1]["wal_lag_s"]) > 2, "followers lag")
        demo.wait_for(lambda: int(demo.lines[-1]["fallback_partitions"]) > 0, "followers fall back")
        demo.wait_for(lambda: demo.metrics(FALLBACK_PARTITIONS).total(FALLBACK_PARTITIONS) > 0, "a broker says so too")
        demo.wait_for(lambda: float(demo.lines[-1]["fallback_usd_month"]) > 10, "that costs dollars")
        demo.wait_for(lambda: any("wal_fallback_began" in event for event in demo.events), "its log was read")
        _is_between(demo, "fallback_bytes", COPIED, topic="orders", path="fallback")

        os.write(typist, b"a")
        demo.wait_for(lambda: any("bucket-a is healed" in event for event in demo.events), "bucket-a is healed")
        demo.wait_for(lambda: _is_well(demo.lines[-1]), "all is well again", HEAL_S)
        assert float(demo.lines[-1]["fallback_bytes"]) > 0
        _is_between(demo, "fallback_bytes", COPIED, topic="orders", path="fallback")

        assert demo.end() == 0
        assert demo.brokers() == []
        assert "Traceback" not in demo.output
    os.close(typist)
    os.close(terminal)


def test_a_broken_zone_is_survived_and_comes_back(tmp_path: Path) -> None:
    typist, terminal = pty.openpty()
    with DemoProcess(tmp_path, "--break", "zone-a:2", streams={"stdin": terminal}) as demo:
        demo.wait_for(
            lambda: demo.lines[-1]["brokers"] == "2/3" and len(demo.brokers()) == 2,  # not only slow
            "one broker is gone",
        )
        demo.wait_for(
            lambda: demo.lines[-1]["leaders"].startswith("0/") and demo.lines[-1]["in_sync"] == "24/36",
            "the others lead without it",
        )
        demo.wait_for_line(lambda line: float(line["orders_mb_s"]) > 0, "they take records", since=len(demo.lines))
        os.write(typist, b"A")
        demo.wait_for(
            lambda: demo.lines[-1]["brokers"] == "3/3" and demo.lines[-1]["in_sync"] == "36/36", "all are in sync"
        )
        assert len(demo.brokers()) == 3
    os.close(typist)
    os.close(terminal)


def test_state_is_gone_on_with_and_closed_segments_are_tiered(tmp_path: Path) -> None:
    with DemoProcess(tmp_path) as demo:
        demo.wait_for(lambda: float(demo.lines[-1]["tiered_bytes"]) > 0, "segments are tiered")
        ids = demo.cluster_ids()
        assert demo.end(signal.SIGTERM) == 0
    assert len(ids) == 1
    with DemoProcess(tmp_path, "--no-load", port=demo.port) as again:
        assert "with what an earlier start left" in again.output
        assert again.cluster_ids() == ids
        consumer = confluent_kafka.Consumer({"bootstrap.servers": f"127.0.0.1:{again.port}", "group.id": "test"})
        ends = [
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition("orders", partition), PATIENCE_S)[1]
            for partition in range(3)
        ]
        consumer.close()
        assert min(ends) > 0, "the records are there"
        assert again.end() == 0


@pytest.mark.s3
def test_one_bucket_of_s3_for_all_zones_is_broken_and_healed(tmp_path: Path) -> None:
    with SeaweedServer(tmp_path / "s3", ["demo"]) as server:
        where = {
            "endpoint.url": server.url,
            "region": REGION,
            "access.key": ACCESS_KEY,
            "secret.key": SECRET_KEY,
            "path.style": "true",
        }
        overrides = [f"{kind}.config.{name}={value}" for kind in ("rwsm", "rsm") for name, value in where.items()]
        options = ["--store", "s3://demo", "--break", "bucket-a:10:20"]
        for override in overrides:
            options += ["--override", override]
        with DemoProcess(tmp_path, *options) as demo:
            demo.wait_for_line(lambda line: float(line["wal_bytes"]) > 0, "the bucket serves")
            demo.wait_for_line(lambda line: line["broken"] == "bucket-a", "bucket-a is broken")
            demo.wait_for_line(lambda line: int(line["fallback_partitions"]) > 0, "followers fall back")
            demo.wait_for(lambda: _is_made_up_for(demo.lines[-1]), "it is made up for", HEAL_S)
            demo.wait_for(lambda: float(demo.lines[-1]["tiered_bytes"]) > 0, "segments are tiered")
            assert demo.end() == 0
        keys = [row["Key"] for row in server.client().list_objects_v2(Bucket="demo")["Contents"]]
        assert {key.split("/")[0] for key in keys} >= {"wal"}


def _is_made_up_for(line: dict[str, str]) -> bool:
    return (line["broken"], line["fallback_partitions"]) == ("-", "0")


def test_a_demo_that_is_killed_leaves_no_broker(tmp_path: Path) -> None:
    with DemoProcess(tmp_path, "--no-load") as demo:
        assert len(demo.brokers()) == 3
        demo.process.kill()
        demo.process.wait()
        demo.wait_until_nothing_is_left()


def test_a_signal_while_it_starts_leaves_nothing_either(tmp_path: Path) -> None:
    demo = DemoProcess(tmp_path).launch()
    try:
        demo.wait_for(lambda: len(demo.brokers()) == 3, "three brokers")
        assert demo.end(signal.SIGTERM) == 0
        assert demo.brokers() == []
    finally:
        demo.__exit__()


def test_two_at_once_are_told_of_each_other(tmp_path: Path) -> None:
    with DemoProcess(tmp_path / "one", "--no-load") as demo:
        other = DemoProcess(tmp_path / "two", port=demo.port).launch()
        assert other.wait() == 1
        assert f"wherry: port {demo.port} is taken" in other.output
        assert len(demo.brokers()) == 3, "and the first one goes on"


def _readme_commands(demo: DemoProcess) -> list[str]:
    """What the README has people type beside the running demo, continued lines joined, for the ports of this one."""
    return [
        re.sub(r"127\.0\.0\.1:(\d+)", lambda match: f"127.0.0.1:{int(match[1]) - 9092 + demo.port}", line)
        for line in readme.commands("Run it")
        if line.startswith(("kcat", "echo", "kafka", "curl"))
    ]


def _printed_commands(demo: DemoProcess) -> list[str]:
    return [line.strip() for line in demo.output.splitlines() if re.match(r"  (kcat|kafka|curl)", line)]


def _run(command: str, directory: Path) -> str:
    """As a shell runs it, with a directory before all others on the path."""
    environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.kcat
def test_what_people_are_told_to_type_works(tmp_path: Path) -> None:
    with DemoProcess(tmp_path) as demo:
        demo.wait_for(lambda: float(demo.lines[-1]["wal_bytes"]) > 0, "the bucket serves")
        typed, printed = _readme_commands(demo), _printed_commands(demo)
        assert (len(typed), len(printed)) == (5, 5)
        said = {command: _run(command, tmp_path) for command in typed + printed if not command.startswith("kafka")}
        (greetings,) = [text for command, text in said.items() if command.endswith("greetings -o beginning -e")]
        assert greetings == "hello\n"
        assert next(text for command, text in said.items() if "| grep -E" in command).startswith("# HELP broker_")
        (orders,) = [text for command, text in said.items() if "-t orders -o -5 -c 5" in command]
        assert orders.count('{"order": ') == 5
        demo.wait_for(
            lambda: demo.lines[-1]["circuits_open"] == "1", "a circuit is open"
        )  # of the order to break a bucket


@pytest.mark.java
def test_the_perf_test_that_people_are_told_to_run_works(tmp_path: Path) -> None:
    tool = tmp_path / "kafka-producer-perf-test.sh"
    tool.write_text(f'#!/bin/sh\nexec {shlex.join(java_tools.command("ProducerPerformance"))} "$@"\n')
    tool.chmod(0o755)
    with DemoProcess(tmp_path) as demo:
        for command in _readme_commands(demo) + _printed_commands(demo):
            if command.startswith("kafka"):
                assert "20000 records sent" in _run(command, tmp_path)


class OnTerminal:
    """The demo on a terminal of its own, and what is on it."""

    def __init__(self, tmp_path: Path, *options: str) -> None:
        self.typist, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal, "start_new_session": True}
        self.demo = DemoProcess(tmp_path, *options, streams=streams).launch()
        os.close(terminal)
        self._text = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self.typist, 65536):
                self._text += data.decode(errors="replace")
        except OSError:
            pass  # the other side is gone

    @property
    def screen(self) -> str:
        """What was drawn last, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._text.rpartition("\x1b[H")[2])

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.screen, f"{text} on the screen", lambda: self._text[-8000:])

    def type(self, key: str) -> None:
        os.write(self.typist, key.encode())


def test_keys_break_and_heal_and_end_it(tmp_path: Path) -> None:
    on = OnTerminal(tmp_path)
    try:
        on.wait_for("q or Ctrl-C ends it")
        on.wait_for("orders wal")
        on.type("1")
        on.wait_for("BROKEN: broker-1")
        on.wait_for("down")
        until(lambda: len(on.demo.brokers()) == 2, "two brokers", lambda: on.screen)
        on.type("1")
        on.wait_for("broker-1 is healed")
        until(lambda: len(on.demo.brokers()) == 3, "three brokers again", lambda: on.screen)
        on.type("q")
        assert on.demo.wait() == 0
        assert on.demo.brokers() == []
    finally:
        on.demo.__exit__()
        os.close(on.typist)


def test_a_terminal_that_goes_ends_it(tmp_path: Path) -> None:
    """As a window that is closed: the terminal hangs up."""
    code = "import os, sys; os.setsid(); import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    code += "os.execv(sys.executable, [sys.executable, '-m', 'broker', *sys.argv[1:]])"
    typist, terminal = pty.openpty()
    demo = DemoProcess(tmp_path)
    arguments = ["demo", "--data", str(demo.data), "--port", str(demo.port), "--no-load"]
    demo.process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    try:
        text = b""
        while b"Ready after" not in text:
            text += os.read(typist, 65536)
        os.close(typist)
        assert demo.wait() == 0
        assert demo.brokers() == []
    finally:
        demo.__exit__()
