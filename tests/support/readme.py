"""What README.md has people type, and whether it can be tried from its beginning."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands(heading: str) -> list[str]:
    """The indented lines below a heading and above the next one, in order; lines that end in a backslash go on."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"^##+ {heading}\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"README.md has no section {heading}"
    lines = [line.strip() for line in found[1].replace("\\\n", " ").splitlines() if line.startswith("    ")]
    assert lines, f"nothing is to be typed in section {heading}"
    return lines


def why_no_fresh_checkout() -> str | None:
    """None when one can be made of this one, and installed: the registry is not asked."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return "this is no git checkout, or git is missing"
    return None if shutil.which("make") else "make is missing"
