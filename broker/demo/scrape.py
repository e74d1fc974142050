"""Scrape: samples of Prometheus' text format, of one broker or added up over several, and what became more of them."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[str, Mapping[Labels, float]]  # by name

_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_HISTOGRAM_SUFFIX: Final = re.compile(r"_(?:bucket|sum|count)$")


class Scrape:
    """Immutable."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    @classmethod
    def parse(cls, text: str, wanted: Collection[str] | None = None) -> "Scrape":
        """Of the metrics with the wanted names, histograms with all their parts; lines of others cost little.  None:
        of all."""
        samples: dict[str, dict[Labels, float]] = {}
        for line in text.splitlines():
            name = line[: _end_of_name(line)]
            if wanted is not None and name not in wanted and _HISTOGRAM_SUFFIX.sub("", name) not in wanted:
                continue
            if (match := _LINE.fullmatch(line)) is not None:
                labels = tuple(sorted(_LABEL.findall(match[2] or "")))
                samples.setdefault(match[1], {})[labels] = float(match[3])
        return cls(samples)

    @classmethod
    def sum_of(cls, scrapes: Iterable["Scrape"]) -> "Scrape":
        total: dict[str, dict[Labels, float]] = {}
        for scrape in scrapes:
            for name, rows in scrape.samples.items():
                sums = total.setdefault(name, {})
                for labels, value in rows.items():
                    sums[labels] = sums.get(labels, 0.0) + value
        return cls(total)

    def increase_since(self, earlier: "Scrape") -> "Scrape":
        """Of counters: one that is lower than before belongs to a process that began anew."""
        grown: dict[str, dict[Labels, float]] = {}
        for name, rows in self.samples.items():
            before = earlier.samples.get(name, {})
            grown[name] = {labels: _increase(before.get(labels, 0.0), value) for labels, value in rows.items()}
        return Scrape(grown)

    def by(self, name: str, *labels: str, **wanted: str) -> dict[tuple[str, ...], float]:
        """The samples of a name with the wanted labels, added up by others."""
        found: dict[tuple[str, ...], float] = {}
        for pairs, value in self.samples.get(name, {}).items():
            have = dict(pairs)
            if wanted.items() <= have.items():
                key = tuple(have.get(label, "") for label in labels)
                found[key] = found.get(key, 0.0) + value
        return found

    def total(self, name: str, **wanted: str) -> float:
        return sum(self.by(name, **wanted).values())

    def highest(self, name: str, **wanted: str) -> float:
        """Of gauges that are not added up; 0 without any."""
        rows = self.samples.get(name, {}).items()
        values = [value for pairs, value in rows if wanted.items() <= dict(pairs).items()]
        return max(values, default=0.0)

    def quantile(self, name: str, part: float, **wanted: str) -> float | None:
        """Of a histogram, as Prometheus reckons it: even within a bucket; None when nothing was observed."""
        counts = self.by(f"{name}_bucket", "le", **wanted)
        buckets = sorted((float(bound), count) for (bound,), count in counts.items())
        total = buckets[-1][1] if buckets else 0.0
        if total <= 0:
            return None
        below, below_count = 0.0, 0.0
        for bound, count in buckets:
            if count >= part * total:
                if bound == float("inf"):
                    return below
                return below + (bound - below) * (part * total - below_count) / max(count - below_count, 1)
            below, below_count = bound, count
        return below


def _increase(before: float, now: float) -> float:
    return now - before if now >= before else now


def _end_of_name(line: str) -> int:
    for position, character in enumerate(line):
        if character in "{ ":
            return position
    return len(line)
