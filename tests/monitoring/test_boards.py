"""The boards of Grafana ask for what there is, and are what their source says."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.prometheus_tools import promtool
from tests.support.promql import known_metrics, problems, selectors

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "config/grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def board(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def panels(of: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in of["panels"] if panel["type"] != "row"]


def targets(of: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((panel["title"], target) for panel in panels(of) for target in panel["targets"])


def plain(expression: str) -> str:
    """As Prometheus gets it."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$topic", ".*")


def test_they_are_current() -> None:
    checked = subprocess.run(
        [sys.executable, str(GRAFANA / "boards.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_each_has_a_uid_of_its_own_by_which_its_file_is_named() -> None:
    assert len(FILES) == 4
    assert [board(path)["uid"] for path in FILES] == [path.stem for path in FILES]
    assert len({board(path)["title"] for path in FILES}) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_panels_ask_for_metrics_and_labels_that_exist(path: Path) -> None:
    found = []
    for title, target in targets(board(path)):
        shown = frozenset(re.findall(r"\{\{\s*(\w+)\s*\}\}", target.get("legendFormat", "")))
        found += [f"{title}: {problem}" for problem in problems(target["expr"], shown)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_variables_are_defined_and_the_datasource_is_one_of_them(path: Path) -> None:
    known = {variable["name"]: variable for variable in board(path)["templating"]["list"]}
    assert (known["datasource"]["type"], known["datasource"]["query"]) == ("datasource", "prometheus")
    for title, target in targets(board(path)):
        used = {a or b for a, b in VARIABLE.findall(target["expr"])}
        assert used - {"__rate_interval"} <= known.keys(), title
    described = [*panels(board(path)), *(target for _, target in targets(board(path)))]
    described += [variable for variable in known.values() if variable["type"] == "query"]
    assert all(each["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for each in described)
    for variable in known.values():
        if variable["type"] == "query":
            (metric, label) = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            assert label == "instance" or label in known_metrics()[metric]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_panels_have_a_place_and_a_number_of_their_own(path: Path) -> None:
    everything = board(path)["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken: dict[tuple[int, int], str] = {}
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} covers {taken[x, y]}"
                taken[x, y] = panel["title"]
    titles = [panel["title"] for panel in panels(board(path))]
    assert len(set(titles)) > len(titles) * 0.9


def test_what_each_area_has_is_on_a_board() -> None:
    """Of replication through buckets, tiered storage and costs every metric is shown somewhere."""
    shown = {
        asked.metric for path in FILES for _, target in targets(board(path)) for asked in selectors(target["expr"])
    }
    areas = ("broker_wal_", "broker_remote_", "broker_cost_", "broker_replication_", "broker_tiering_")
    wanted = {name for name in known_metrics() if name.startswith(areas) or "_remote" in name}
    missing = {name for name in wanted - shown if not name.endswith(("_sum", "_count"))}
    assert missing == {
        "broker_remote_log_throttle_longest_seconds",
        "broker_wal_metadata_retention_violations",
        "kafka_server_brokertopicmetrics_remotedeletelagsegments",
        "kafka_server_brokertopicmetrics_remotelogsizecomputationtime",
    }


@pytest.mark.promtool
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    expressions = [plain(target["expr"]) for path in FILES for _, target in targets(board(path))]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(expressions)} rules found" in checked.stdout


def test_grafana_is_told_of_the_boards_and_of_prometheus() -> None:
    (datasource,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert (datasource["type"], datasource["isDefault"]) == ("prometheus", True)
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/wherry.yml").read_text())["providers"]
    assert provider["type"] == "file"
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    mounts = {mount.split(":")[0]: mount.split(":")[1] for mount in services["grafana"]["volumes"]}
    assert mounts["./config/grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./config/grafana/provisioning"] == "/etc/grafana/provisioning"
    assert datasource["url"].removeprefix("http://").split(":")[0] in services


def test_prometheus_is_told_of_the_brokers() -> None:
    (job,) = yaml.safe_load((ROOT / "config/prometheus/prometheus.yml").read_text())["scrape_configs"]
    told = {target.split(":")[0] for config in job["static_configs"] for target in config["targets"]}
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert told == {name for name in services if name.startswith("broker-")}
    assert "./config/prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(broker_no_such_total[5m])", "no metric broker_no_such_total"),
        ('broker_fenced{zone="a"} == 1', "no label zone of broker_fenced"),
        ("sum by (partition) (broker_fenced)", "no label partition to group by"),
        ("sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total[1m]))", "no label hop to show"),
        ("vector(1)", "no metric"),
        ("rate(broker_wal_hop_seconds[1m])", "no metric broker_wal_hop_seconds"),
    ],
)
def test_what_does_not_exist_is_found(expression: str, problem: str) -> None:
    assert problem in problems(expression, frozenset({"hop"} if "hop" in problem else ()))
