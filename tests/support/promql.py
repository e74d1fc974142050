"""What an expression of PromQL asks for: enough of its grammar to find metrics and labels that do not exist."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from broker.metrics.reference import all_metrics

TARGET_LABELS: Final = frozenset({"job", "instance"})  # which Prometheus adds itself
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR: Final = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)(?![\w:])\s*+(?:\{([^}]*)\})?+(?!\s*\()")
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_WORDS: Final = {"and", "or", "unless", "bool", "offset", "inf", "nan"}


class Asked(NamedTuple):
    metric: str
    labels: frozenset[str]  # that its selector compares


def selectors(expression: str) -> Iterator[Asked]:
    """The metrics of an expression, each with the labels its selector names."""
    bare = _RANGE.sub("", _GROUPING.sub("", _STRING.sub("''", expression)))
    for name, matchers in _SELECTOR.findall(bare):
        if name.lower() not in _WORDS:
            yield Asked(name, frozenset(re.findall(r"([a-zA-Z_]\w*)\s*[=!]", matchers)))


def grouped_labels(expression: str) -> frozenset[str]:
    """The labels that aggregations and matchings of an expression name."""
    lists = _GROUPING.findall(_STRING.sub("''", expression))
    return frozenset(label for each in lists for label in re.findall(r"\w+", each))


@cache
def known_metrics() -> Mapping[str, frozenset[str]]:
    """The labels of each time series a broker may expose, and of what Prometheus says of a scrape."""
    known = {"up": frozenset[str]()}
    for _, definitions in all_metrics():
        for definition in definitions:
            labels = frozenset(definition.labels)
            if definition.kind == "histogram":
                known[f"{definition.name}_bucket"] = labels | {"le"}
                known[f"{definition.name}_sum"] = known[f"{definition.name}_count"] = labels
            else:
                known[definition.name] = labels
    return known


def problems(expression: str, shown_labels: frozenset[str] = frozenset()) -> list[str]:
    """What an expression, or whoever shows its result by `shown_labels`, asks for in vain."""
    known = known_metrics()
    asked = list(selectors(expression))
    found = [] if asked else ["no metric"]
    available = set(TARGET_LABELS)
    for metric, labels in asked:
        if metric not in known:
            found.append(f"no metric {metric}")
            continue
        available |= known[metric]
        found += [f"no label {label} of {metric}" for label in labels - known[metric] - TARGET_LABELS]
    grouped = grouped_labels(expression)
    found += [f"no label {label} to group by" for label in grouped - available]
    shown = shown_labels - (grouped if grouped else available)
    return found + [f"no label {label} to show" for label in shown]
