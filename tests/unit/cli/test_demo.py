import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli import demo, main
from broker.demo import demonstration
from broker.demo.demonstration import DemoOptions
from broker.demo.layout import DemoError


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[DemoOptions]:
    """What would have been shown."""
    options: list[DemoOptions] = []

    def run(given: DemoOptions, *, tell: object) -> int:
        options.append(given)
        return 0

    monkeypatch.setattr(demonstration, "run", run)
    monkeypatch.setattr(demo, "configure_logging", lambda level: None)
    return options


def test_without_options(ran: list[DemoOptions]) -> None:
    assert main(["demo"]) == 0
    (options,) = ran
    assert options.layout.data == Path.cwd() / "data/demo"
    assert [node.port for node in options.layout.nodes] == [9092, 9093, 9094]
    assert (options.megabytes_per_second, options.breaks, options.layout.store) == (2.0, [], None)


def test_with_all_of_them(ran: list[DemoOptions], tmp_path: Path) -> None:
    words = f"demo --data {tmp_path} --port 19092 --brokers 4 --store s3://wherry --no-load"
    breaks = ["--break", "bucket-a:5:10", "--break", "broker-4"]
    assert main([*words.split(), *breaks, "--override", "log.retention.hours=1"]) == 0
    (options,) = ran
    assert (options.layout.store, len(options.layout.nodes)) == ("s3://wherry", 4)
    assert options.megabytes_per_second is None
    assert [(str(each.target), each.after_seconds, each.heal_after_seconds) for each in options.breaks] == [
        ("bucket-a", 5, 10),
        ("broker-4", 0, None),
    ]
    assert options.layout.settings_of(options.layout.node(1))["log.retention.hours"] == "1"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--brokers", "12"], "wherry: --brokers 12: valid values are [1,...,9].\n"),
        (["--mbps", "0"], "wherry: --mbps 0: valid values are (0,...,1000].\n"),
        (["--break", "moon"], "wherry: --break moon: valid values are bucket-a, "),
        (["--override", "x"], "wherry: --override 'x': expected name=value.\n"),
    ],
)
def test_what_makes_no_sense_is_a_sentence_and_exit_code_two(
    ran: list[DemoOptions], capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["demo", *arguments]) == 2
    assert capsys.readouterr().err.startswith(sentence)
    assert ran == []


def test_what_cannot_be_started_is_a_sentence_and_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ran: list[DemoOptions]
) -> None:
    def run(given: DemoOptions, *, tell: object) -> int:
        raise DemoError("port 9092 is taken")

    monkeypatch.setattr(demonstration, "run", run)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "wherry: port 9092 is taken\n"


def test_other_commands_do_not_load_it() -> None:
    check = "import sys, broker.cli; sys.exit('broker.demo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_nobody_who_reads_is_told_once_and_quietly() -> None:
    code = (
        "from broker.cli.demo import announce\n"
        "for told in range(2):\n"
        "    try:\n"
        "        announce('line')\n"
        "    except BrokenPipeError:\n"
        "        assert not told\n"
        "    else:\n"
        "        assert told\n"
    )
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (0, b"")
