"""The lists of what passes of the peers' suites: one line per test, `KIND NAME`."""

from collections.abc import Collection
from pathlib import Path

DIRECTORY = Path(__file__).parent / "expected"
PASS = "pass"  # here as on Apache Kafka
NEITHER = "neither"  # fails or is skipped on Apache Kafka, too, in the same surroundings
# Every other kind is the reason why a test that passes on Apache Kafka does not pass here.


class ExpectedList:
    """One suite's list.  Its first line, a comment, tells suite, commit and date."""

    def __init__(self, suite: str) -> None:
        self._path = DIRECTORY / f"{suite}.txt"
        lines = self._path.read_text().splitlines() if self._path.exists() else [f"# {suite}"]
        self._comments = [line for line in lines if line.startswith("#")]
        self.kind_of: dict[str, str] = {}
        for line in lines:
            if line and not line.startswith("#"):
                kind, name = line.split(" ", 1)
                self.kind_of[name] = kind

    @property
    def title(self) -> str:
        return self._comments[0].removeprefix("# ")

    @property
    def kinds(self) -> list[str]:
        return sorted(set(self.kind_of.values()))

    def names(self, kind: str) -> list[str]:
        return [name for name, each in self.kind_of.items() if each == kind]

    def record(self, passed: Collection[str]) -> None:
        """Add what passes; nothing is ever taken from the list by itself."""
        self.kind_of |= dict.fromkeys(passed, PASS)
        rows = sorted(f"{kind} {name}" for name, kind in self.kind_of.items())
        self._path.write_text("\n".join([*self._comments, *rows]) + "\n")
