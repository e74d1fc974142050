"""Each alarm fires when it should and only then, as Prometheus reckons; and the page says what to do about it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.prometheus_tools import promtool
from tests.support.promql import problems

ROOT = Path(__file__).parents[2]
ALARMS = ROOT / "config/prometheus/alarms.yml"
STORIES = Path(__file__).with_name("alarms.test.yml")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALARMS.read_text())["groups"] for rule in group["rules"]]


def names() -> set[str]:
    return {rule["alert"] for rule in rules()}


@pytest.mark.promtool
def test_prometheus_takes_its_configuration_and_the_alarms() -> None:
    checked = promtool("check", "config", str(ROOT / "config/prometheus/prometheus.yml"))
    assert checked.returncode == 0, checked.stderr
    assert f"SUCCESS: {len(rules())} rules found" in checked.stdout


@pytest.mark.promtool
def test_alarms_fire_when_they_should_and_only_then() -> None:
    tested = promtool("test", "rules", str(STORIES))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alarm_fires_in_one_story_and_is_silent_in_another() -> None:
    stories = [
        [
            {re.findall('alertname="(.*?)"', sample["labels"])[0] for sample in expected["exp_samples"]}
            for expected in story["promql_expr_test"]
        ]
        for story in yaml.safe_load(STORIES.read_text())["tests"]
    ]
    firing = set().union(*(alarms for story in stories for alarms in story))
    assert firing == names()
    never_silent = {name for name in names() for story in stories if all(name in alarms for alarms in story)}
    assert never_silent == set()


def test_every_alarm_says_what_it_is_and_how_bad() -> None:
    assert len(names()) == len(rules())
    for rule in rules():
        assert rule["labels"].keys() == {"severity"}, rule
        assert rule["labels"]["severity"] in ("warning", "critical"), rule
        assert len(rule["annotations"]["summary"]) > 20, rule


def test_every_alarm_has_its_line_in_the_runbook() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    (section,) = re.findall(r"^### Alarms$(.*?)^##", page, re.DOTALL | re.MULTILINE)
    lines = [re.split(r" ?\| ?", line)[1:-1] for line in section.splitlines() if line.startswith("| `Wherry")]
    assert {line[0].strip("`") for line in lines} == names()
    assert len(lines) == len(names())
    for line in lines:
        assert len(line) == 3, line
        assert all(len(cell) > 8 for cell in line), line


def test_alarms_ask_for_metrics_and_labels_that_exist() -> None:
    found = []
    for rule in rules():
        shown = frozenset(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        found += [f"{rule['alert']}: {problem}" for problem in problems(rule["expr"], shown)]
    assert not found, "\n".join(found)
