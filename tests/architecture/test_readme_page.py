"""README.md says what is so: its commands exist, and each of its sections with commands is tried by a test."""

import re

from tests.support import readme


def test_every_number_has_a_command_of_the_makefile() -> None:
    (table,) = re.findall(r"^## Numbers\n(.*?)^## ", (readme.ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    cells = [line.split("|")[3].strip() for line in table.splitlines() if line.startswith("| ")][2:]
    commands = [re.fullmatch(r'`make ([a-z-]+)(?: OPTIONS="[^"`]+")?`', cell) for cell in cells]
    assert cells and all(commands), cells
    targets = set(re.findall(r"^([a-z-]+):", (readme.ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {command[1] for command in commands if command} <= targets


def test_every_command_is_tried_somewhere() -> None:
    """A section with commands that nobody tries is noticed here."""
    text = (readme.ROOT / "README.md").read_text()
    sections = [
        match[1] for match in re.finditer(r"^##+ (.*)\n((?:(?!^##).*\n)*)", text, re.MULTILINE) if "\n    " in match[2]
    ]
    assert sections == ["Run it", "One broker", "Three brokers", "Through buckets", "Tiered", "Containers", "Test it"]
