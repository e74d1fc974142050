"""Planted bugs: does the simulation find what it is for?

Each patch in `planted/` breaks one rule of replication, in `planted/wal/` one of replication through buckets.  Its
first lines say which.  It is applied to a copy of the tree, and the copy's simulation must fail within 200 seeds:

    python -m tests.simulation.planted                  # `make planted`; or with names of patches
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.simulation.hunt import say

ROOT: Final = Path(__file__).parents[2]
PATCHES: Final = Path(__file__).with_name("planted")
SEEDS: Final = 200
COPIED: Final = ("broker", "tests/__init__.py", "tests/support", "tests/simulation")


def patches(names: list[str]) -> list[Path]:
    return [path for path in sorted(PATCHES.rglob("*.patch")) if not names or path.stem in names]


def copy_tree(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)


def apply(patch: Path, tree: Path, *, check: bool = False) -> str:
    """What is wrong with the patch; empty when it applies (or, with `check`, would)."""
    command = ["git", "apply", "-C1", *(["--check"] if check else []), str(patch)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def find(patch: Path) -> str:
    """What the simulation says of the broken tree; empty when it finds nothing."""
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        complaint = apply(patch, tree)
        assert not complaint, f"{patch.name}: {complaint}"
        story = "wal" if patch.parent.name == "wal" else "cluster"
        command = [sys.executable, "-m", "tests.simulation.hunt", "--story", story]
        command += ["--seeds", str(SEEDS), "--stop", "--jobs", "1"]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith(f"{story} seed ")]
        assert found or done.returncode == 0, done.stderr
        return found[0] if found else ""


def main() -> int:
    missed = 0
    for patch in patches(sys.argv[1:]):
        started = time.monotonic()
        found = find(patch)
        missed += not found
        found = found or f"NOT FOUND in {SEEDS} seeds"
        say(f"{patch.stem}: {found} ({time.monotonic() - started:.0f} s)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
