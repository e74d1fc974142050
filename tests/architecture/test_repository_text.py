"""The repository speaks of the project alone, and has the pages a reader expects."""

import re
import tomllib

import pytest

from .source_tree import ROOT, repository_files

# Paths of the machine something was once made on.  Written in pieces, or this file would be its own first finding.
_BANNED = ("/" + "work" + "/", "/tmp/" + "wherry", "shared" + "/spec", "shared" + "/design")


def test_no_file_names_a_machine_it_was_made_on() -> None:
    found = []
    for path in repository_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # captured bytes
        found += [f"{path.relative_to(ROOT)}: {word}" for word in _BANNED if word in text]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "name",
    [
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "broker/README.md",
        "docs/architecture.md",
        "docs/configuration.md",
        "docs/metrics.md",
        "docs/protocol.md",
        "requirements.lock",
    ],
)
def test_the_expected_pages_are_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 0


def test_the_changelog_has_a_section_for_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert any(version in heading or "Unreleased" in heading for heading in headings), headings


def test_relative_links_lead_somewhere() -> None:
    pages = [path for path in repository_files() if path.suffix == ".md"]
    assert pages
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([\w./-]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)
