"""`python config/grafana/boards.py` writes the dashboards of Grafana; `--check` says whether they are current."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from contents import BOARDS
from panels import Board, Panel

DIRECTORY: Final = Path(__file__).parent / "dashboards"

_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SHORT: Final = {
    "TOPIC_": "kafka_server_brokertopicmetrics_",
    "REPLICAS_": "kafka_server_replicamanager_",
    "FETCHERS_": "kafka_server_replicafetchermanager_",
    "CONTROLLER_": "kafka_controller_kafkacontroller_",
    "GROUPS_": "kafka_coordinator_group_groupmetadatamanager_",
    "READERS_": "org_apache_kafka_storage_internals_log_remotestoragethreadpool_",
    "{I}": '{instance=~"$instance"}',
    "{I, ": '{instance=~"$instance", ',
    "{T}": '{instance=~"$instance", topic=~"$topic"}',
    "{T, ": '{instance=~"$instance", topic=~"$topic", ',
    "[R]": "[$__rate_interval]",
}
_COLUMNS: Final = 24


def dashboard(board: Board) -> dict[str, Any]:
    """The JSON model of a dashboard."""
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["wherry"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "tags": ["wherry"], "title": "Wherry", "asDropdown": False, "keepTime": True}],
        "templating": {"list": _variables()},
        "panels": list(_panels(board)),
    }


def _variables() -> list[dict[str, Any]]:
    def choice(name: str, label: str, metric: str) -> dict[str, Any]:
        query = f"label_values({_long(metric)}, {name})"
        return {
            "type": "query",
            "name": name,
            "label": label,
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }

    return [
        {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "current": {}},
        choice("instance", "Broker", "broker_fenced"),
        choice("topic", "Topic", "TOPIC_bytesin_total"),
    ]


def _panels(board: Board) -> Iterator[dict[str, Any]]:
    number, y = 1, 0
    for row in board.rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": _place(0, y, 24, 1),
        }
        number, x, y, height = number + 1, 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            yield _panel(number, panel, x, y)
            number, x, height = number + 1, x + panel.width, panel.height
        y += height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + position),
            "datasource": _DATASOURCE,
            "expr": _long(expression),
            **({"legendFormat": legend} if legend else {}),
            **({"instant": True} if panel.kind == "stat" else {}),
        }
        for position, (expression, legend) in enumerate(panel.lines)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.about} if panel.about else {}),
        "datasource": _DATASOURCE,
        "gridPos": _place(x, y, panel.width, panel.height),
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    if panel.kind == "stat":
        return {**defaults, "thresholds": {"mode": "absolute", "steps": steps}}
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 30 if panel.is_stacked else 5, "showPoints": "never"}
    if panel.is_stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    return {**defaults, "min": None if panel.unit == "currencyUSD" else 0, "custom": custom}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _long(expression: str) -> str:
    for short, long in _SHORT.items():
        expression = expression.replace(short, long)
    return expression


def main(arguments: Sequence[str]) -> int:
    """Write the dashboards, or with `--check` say which are not current."""
    stale = []
    for board in BOARDS:
        path = DIRECTORY / f"{board.uid}.json"
        text = json.dumps(dashboard(board), indent=1) + "\n"
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)}: run python config/grafana/boards.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
