"""Writes docs/protocol.md from the registries and the handlers' docstrings; `--check` fails when it is stale."""

import argparse
import sys
from pathlib import Path
from typing import Final

from kio.schema.index import schema_name_map

from broker.server import controller_handlers, handlers
from broker.server.api_registry import ApiHandler, ApiRegistry

TARGET: Final = Path(__file__).parents[2] / "docs" / "protocol.md"
HEADINGS: Final = ("Behaviour:", "Versions:", "Left out:")

INTRODUCTION: Final = """\
# Protocol

Every request this broker answers, with its versions, what it does and what is left out. This page is generated from
the registry and the handlers' docstrings (`python -m broker.server.protocol_reference`); a request that does not stand
here closes its connection, as Apache Kafka does.
"""


def reference(broker: ApiRegistry, controller: ApiRegistry) -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, registry in (("Listeners of the broker", broker), ("Listeners of the controller", controller)):
        parts.append(f"## {title}\n")
        parts.append(_table(registry))
        parts.extend(_section(handler) for handler in registry)
    return "\n".join(parts)


def _table(registry: ApiRegistry) -> str:
    rows = ["| key | request | versions | newest known |", "| --- | --- | --- | --- |"]
    for handler in registry:
        newest = max(schema_name_map[handler.api_key.schema_name])
        rows.append(f"| {handler.api_key.value} | {handler.api_key.title} | {_versions(handler)} | {newest} |")
    return "\n".join(rows) + "\n"


def _versions(handler: ApiHandler) -> str:
    first, last = handler.versions.start, handler.versions[-1]
    text = f"{first}" if first == last else f"{first}-{last}"
    if handler.advertised_from < first:
        text += f" (listed from {handler.advertised_from})"
    return text


def _section(handler: ApiHandler) -> str:
    lines = handler.documentation.splitlines()
    summary = lines[0].strip() if lines else ""
    out = [f"### {handler.api_key.title} ({handler.api_key.value}), versions {_versions(handler)}\n", f"{summary}\n"]
    out.extend(f"- **{heading.rstrip(':')}.** {text}" for heading, text in paragraphs(handler).items() if text != "—")
    return "\n".join(out) + "\n"


def paragraphs(handler: ApiHandler) -> dict[str, str]:
    """The docstring's paragraphs by their heading, each as one line."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in handler.documentation.splitlines()[1:]:
        text = line.strip()
        heading = next((each for each in HEADINGS if text.startswith(each)), None)
        if heading is not None:
            current = found.setdefault(heading, [])
            text = text.removeprefix(heading).strip()
        if current is not None and text:
            current.append(text)
    return {heading: " ".join(texts) for heading, texts in found.items()}


def problems(registry: ApiRegistry) -> list[str]:
    """What a reader of the page would miss: a handler without one of the headings."""
    return [
        f"{handler.function.__module__}: the docstring of {handler.api_key.title} has no {heading!r}"
        for handler in registry
        for heading in HEADINGS
        if heading not in paragraphs(handler)
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is stale")
    options = parser.parse_args(arguments)
    broker, controller = ApiRegistry.from_package(handlers), ApiRegistry.from_package(controller_handlers)
    complaints = problems(broker) + problems(controller)
    page = reference(broker, controller)
    if options.check:
        if not TARGET.exists() or TARGET.read_text() != page:
            complaints.append(f"{TARGET.name} is stale: run python -m broker.server.protocol_reference")
    else:
        TARGET.write_text(page)
    for complaint in complaints:
        sys.stderr.write(complaint + "\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
