"""Planted bugs: do the tests find what they are for?

Each patch in `planted/` takes one rule out of the product; those in `planted/wal/` are the rules of replication through
buckets (KIP-1176) without which a model of the protocol loses records, shows foreign ones or stands still, those in
`planted/tiered/` rules of tiered storage (KIP-405).  A patch begins with what it breaks, and then names all that must
find it:

    Found by: tests/scenarios/test_wal_followers.py::test_30_a_deposed_leader_with_a_live_bucket_is_not_believed
    Found by: seeds of wal

It is applied to a copy of the tree, where each test named must fail (and it must pass without the patch), and where the
simulation must fail within 200 seeds of the story (tests/simulation/hunt.py):

    python -m tests.simulation.planted                  # `make planted`; or with names of patches
    python -m tests.simulation.planted --tests          # only those that tests find, and only by them: minutes
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.hunt import say

ROOT: Final = Path(__file__).parents[2]
PATCHES: Final = Path(__file__).with_name("planted")
SEEDS: Final = 200
COPIED: Final = (
    "broker",
    "pyproject.toml",
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/support",
    "tests/unit",
    "tests/scenarios",
    "tests/properties",
    "tests/simulation",
)
TEST_SECONDS_MAX: Final = 120  # a test that does not end has found it too
FOUND_BY: Final = "Found by: "
SEEDS_OF: Final = "seeds of "
# A patch that only breaks Python is found by everything, and says nothing.
NO_FINDING: Final = re.compile(r" - (NameError|ImportError|ModuleNotFoundError|SyntaxError|UnboundLocalError)")


@dataclass(frozen=True, slots=True)
class Planted:
    """`tests` are names of pytest's tests, without parameters; `stories` those of the simulation."""

    patch: Path
    tests: tuple[str, ...]
    stories: tuple[str, ...]

    @classmethod
    def read(cls, patch: Path) -> "Planted":
        lines = patch.read_text(encoding="utf-8").partition("\n--- ")[0].splitlines()
        found_by = [line.removeprefix(FOUND_BY) for line in lines if line.startswith(FOUND_BY)]
        return cls(
            patch,
            tuple(each for each in found_by if not each.startswith(SEEDS_OF)),
            tuple(each.removeprefix(SEEDS_OF) for each in found_by if each.startswith(SEEDS_OF)),
        )


def patches(names: Sequence[str]) -> list[Path]:
    found = [path for path in sorted(PATCHES.rglob("*.patch")) if not names or path.stem in names]
    unknown = set(names) - {path.stem for path in found}
    assert not unknown, f"there are no such patches: {sorted(unknown)}"
    return found


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


def run_tests(names: Iterable[str], tree: Path) -> dict[str, str]:
    """Each test that fails, without its parameters, and what it says first.  RuntimeError: they did not run."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-rf", "-p", "no:cacheprovider"]
    command += [f"--timeout={TEST_SECONDS_MAX}", *names]
    environment = {**os.environ, "COLUMNS": "500"}  # else what a test says is cut
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if line.startswith("FAILED "):
            name, _, complaint = line.removeprefix("FAILED ").partition(" - ")
            failed.setdefault(name.partition("[")[0], f" - {complaint}")
    return failed


def run_seeds(story: str, tree: Path) -> str:
    """What the simulation says of the tree; empty when it finds nothing."""
    command = [sys.executable, "-m", "tests.simulation.hunt", "--story", story]
    command += ["--seeds", str(SEEDS), "--stop", "--jobs", "1"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith(f"{story} seed ")]
    assert found or done.returncode == 0, done.stderr
    return found[0] if found else ""


def find(planted: Planted, *, with_seeds: bool) -> tuple[list[str], list[str]]:
    """Who found it in a copy of the tree, and who should have and did not."""
    found, missed = [], []
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        complaint = apply(planted.patch, tree)
        assert not complaint, f"{planted.patch.name}: {complaint}"
        failed = run_tests(planted.tests, tree) if planted.tests else {}
        for name in planted.tests:
            if name in failed and not NO_FINDING.match(failed[name]):
                found.append(name.rpartition("::")[2] + failed[name][:100])
            else:
                missed.append(name + failed.get(name, ""))
        for story in planted.stories if with_seeds else ():
            seed = run_seeds(story, tree)
            (found if seed else missed).append(seed or f"{SEEDS} {SEEDS_OF}{story}")
    return found, missed


def fail_unpatched(all_planted: Sequence[Planted]) -> bool:
    """Whether a test that is to find something fails without it, so that it says nothing."""
    names = sorted({name for each in all_planted for name in each.tests})
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy_tree(Path(directory))
        failed = run_tests(names, Path(directory)) if names else {}
    for name, complaint in failed.items():
        say(f"FAILS WITHOUT A PATCH: {name}{complaint}")
    return bool(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description="bugs planted in copies of the tree: are they found?")
    parser.add_argument("names", nargs="*", help="of patches, without .patch; by default all")
    parser.add_argument("--tests", action="store_true", help="only what tests find: no seeds of the simulation")
    options = parser.parse_args()
    chosen = [each for each in map(Planted.read, patches(options.names)) if each.tests or not options.tests]
    is_failed = fail_unpatched(chosen)
    for planted in chosen:
        started = time.monotonic()
        found, missed = find(planted, with_seeds=not options.tests)
        is_failed |= bool(missed)
        for line in found:
            say(f"{planted.patch.stem}: {line}")
        for line in missed:
            say(f"{planted.patch.stem}: NOT FOUND BY {line}")
        say(f"{planted.patch.stem}: {'MISSED' if missed else 'found'} ({time.monotonic() - started:.0f} s)")
    return 1 if is_failed else 0


if __name__ == "__main__":
    sys.exit(main())
