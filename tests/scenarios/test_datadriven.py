"""The runner of scenario files itself."""

from pathlib import Path

import pytest

from tests.support.datadriven import parse, run

TEXT = """# Why.
add 1 to=2
----
3

silent
----
"""


def answer(verb: str, arguments: dict[str, str]) -> str:
    return str(int(arguments["0"]) + int(arguments["to"])) if verb == "add" else ""


def test_commands_arguments_and_comments() -> None:
    first, second = parse(TEXT)
    assert (first.verb, first.arguments, first.expected) == ("add", {"0": "1", "to": "2"}, ["3"])
    assert (first.comment, first.line) == (["# Why."], 2)
    assert (second.verb, second.arguments, second.expected) == ("silent", {}, [])


def test_a_command_without_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1: 'add 1 to=2' is not followed by ----"):
        list(parse("add 1 to=2\n3\n"))


def test_a_wrong_answer_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text(TEXT)
    run(path, answer)
    path.write_text(TEXT.replace("\n3\n", "\n4\n"))
    with pytest.raises(AssertionError, match=r"story.txt:2: add 1 to=2"):
        run(path, answer)


def test_rewriting_keeps_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITE", "1")
    path = tmp_path / "story.txt"
    path.write_text(TEXT.replace("\n3\n", "\n4\n"))
    run(path, answer)
    assert path.read_text() == TEXT
