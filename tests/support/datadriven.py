"""Scenario files: a command, `----`, what it must answer, an empty line.

    # Why this story is told.
    fetch replica=3 offset=120
    ----
    isr=[1, 2] pending=expand(3) high_watermark=120

Words with `=` are arguments by name, the others by position ("0", "1", ...).  `REWRITE=1` writes the answers into the
file; reading the difference is the review.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SEPARATOR = "----"


@dataclass
class Command:
    """One command of a scenario.  `comment` are the lines before it, kept as they are."""

    line: int
    text: str
    comment: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    @property
    def verb(self) -> str:
        return self.text.split()[0]

    @property
    def arguments(self) -> dict[str, str]:
        words = self.text.split()[1:]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        positional = {str(index): word for index, word in enumerate(word for word in words if "=" not in word)}
        return {**positional, **named}


def parse(text: str) -> Iterator[Command]:
    """The commands of a file; ValueError where a command lacks its separator."""
    comment: list[str] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.startswith("#"):
            comment.append(line)
            continue
        command = Command(number, line, comment)
        comment = []
        _, separator = next(lines, (number, ""))
        if separator != SEPARATOR:
            raise ValueError(f"line {number}: {line!r} is not followed by {SEPARATOR}")
        for _, answer in lines:
            if not answer.strip():
                break
            command.expected.append(answer)
        yield command


def run(path: Path, handle: Callable[[str, dict[str, str]], str]) -> None:
    """Run every command and compare what it answers; with REWRITE=1 replace what the file expects."""
    written: list[str] = []
    rewrite = bool(os.environ.get("REWRITE"))
    for command in parse(path.read_text()):
        actual = handle(command.verb, command.arguments).splitlines()
        written += [*command.comment, command.text, SEPARATOR, *actual, ""]
        if not rewrite:
            assert actual == command.expected, (
                f"{path.name}:{command.line}: {command.text}\n--- expected\n"
                + "\n".join(command.expected)
                + "\n--- actual\n"
                + "\n".join(actual)
            )
    if rewrite:
        path.write_text("\n".join(written))
