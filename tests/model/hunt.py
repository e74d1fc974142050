"""Search the model for long: more walks, larger bounds, seeds that show what a rule is good for.

    python -m tests.model.hunt --walks 20000                 # `make model WALKS=20000`
    python -m tests.model.hunt --walks 0 --states 1500000    # the bounds that are searched to the end, and no walks
    python -m tests.model.hunt --walks 5000 --without LINEAGE --set appends=5 --set elections=3

A violation is printed with its shrunk trace.  The exit code is 1 when one was found.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tests.model import rules
from tests.model.explorer import Walk, shrink, walk_many
from tests.model.removals import QUIET, TINY
from tests.model.search import breadth_first
from tests.model.settings import Settings

ROUGH: Final = Settings(appends=16, elections=7, crashes=3, dead_zones=1, deletions=2, tail_loss=True, widest_batch=3)
WORLDS: Final = {
    "three replicas": ROUGH,
    "two replicas": replace(ROUGH, replicas=2),
    "one offset a batch": replace(ROUGH, widest_batch=1),
    "unclean elections": replace(ROUGH, unclean=3),
    "uploads and elections": replace(QUIET, appends=6, elections=4, isr_changes=2, deletions=2),
}
_RESUMED_AT_END: Final = replace(TINY, without=frozenset({rules.RESUME_AT_WATERMARK}))
BOUNDS: Final = {
    "1 append, 1 election": TINY,
    "1 append, 1 election, uploads from the log end": _RESUMED_AT_END,
    "1 append, 1 election, a crash with loss, a duplicate; uploads from the log end": replace(
        _RESUMED_AT_END, crashes=1, duplicates=1, tail_loss=True
    ),
    "1 append of 1 or 2 offsets, 1 election": replace(TINY, widest_batch=2),
    "2 appends, 1 election, uploads from the log end": replace(_RESUMED_AT_END, appends=2),
}
"""Two replicas each, from small to large; the largest has more than a million states."""
CHUNK: Final = 500
STEPS: Final = 500


def _walks(settings: Settings, count: int) -> Walk | None:
    """Walk from the seeds 0, 1, ...; the first that breaks a promise."""
    steps = 0
    for first in range(0, count, CHUNK):
        found, taken, _ = walk_many(settings, range(first, min(count, first + CHUNK)), STEPS)
        steps += taken
        if found is not None:
            return found
    print(f"  {count} walks, {steps} steps: no promise broken", flush=True)
    return None


def _bounds(most_states: int) -> Iterator[bool]:
    for name, settings in BOUNDS.items():
        explored = breadth_first(settings, most_states=most_states)
        how = "complete" if explored.complete else "not complete"
        print(f"{name}: {explored.states} states, depth {explored.depth}, {how}; {explored.violation or 'all kept'}")
        for action in explored.trace:
            print(f"    {tuple(action)}")
        yield explored.violation is None


def _worlds(arguments: argparse.Namespace) -> Iterator[tuple[str, Settings]]:
    without = frozenset(getattr(rules, name) for name in arguments.without)
    changes: dict[str, Any] = {name: int(value) for name, value in (each.split("=") for each in arguments.set)}
    for name, settings in WORLDS.items():
        yield name, replace(settings, without=without, **changes)


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=5000, help="walks in each world")
    parser.add_argument("--states", type=int, default=0, help="search the bounds, up to this many states each")
    parser.add_argument("--without", action="append", default=[], help="a name of rules.py to take away")
    parser.add_argument("--set", action="append", default=[], help="a setting for all worlds: name=number")
    arguments = parser.parse_args()
    kept = all(list(_bounds(arguments.states))) if arguments.states else True
    for name, settings in _worlds(arguments) if arguments.walks else ():
        print(name, flush=True)
        found = _walks(settings, arguments.walks)
        if found is not None:
            kept = False
            shortest = shrink(settings, found)
            print(f"  seed {found.seed}: {shortest.violation}")
            for action in shortest.trace:
                print(f"    {tuple(action)}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
