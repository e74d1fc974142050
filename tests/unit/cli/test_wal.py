import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli import main


def test_there_are_three_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["wal", "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(f"    {look} " in told for look in ("ls", "show", "verify"))


@pytest.mark.parametrize("arguments", [["wal"], ["wal", "ls"], ["wal", "show", "s3://b"], ["wal", "look", "s3://b"]])
def test_arguments_that_cannot_be_read(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: wherry wal" in capsys.readouterr().err


def test_other_commands_do_not_load_it(tmp_path: Path) -> None:
    check = "import sys, broker.cli; sys.exit('broker.cli.wal_looks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_look_is_done_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wal", "ls", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == ["AGE", "SIZE", "BROKER", "SLICES", "KEY"]
