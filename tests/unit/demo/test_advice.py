import json
import re
import shlex
from pathlib import Path

import pytest

from broker.cli import _parser
from broker.demo.advice import advice
from broker.demo.layout import Layout

TYPED = ["/usr/bin/python3", ".venv/bin/wherry", "demo", "--data", "my data"]


def test_every_command_has_the_addresses_of_this_cluster(tmp_path: Path) -> None:
    text = "\n".join(advice(Layout(tmp_path, port=19092), TYPED))
    assert "kcat -b 127.0.0.1:19092 -L" in text
    assert "bootstrap.servers=127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094 " in text
    assert "curl -s 127.0.0.1:19404/metrics" in text


def test_the_order_to_a_bucket_can_be_read(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (order,) = re.findall(r"curl -d '(.*)' 127.0.0.1:9404/faults", "\n".join(advice(layout, TYPED)))
    assert json.loads(order) == {"bucket": layout.fast_buckets["a"].name, "down": "black_hole"}


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        (TYPED, ".venv/bin/wherry demo --data 'my data' --break zone-a:10:30"),
        (["python3", "-m", "broker", "demo"], "python3 -m broker demo --break zone-a:10:30"),
    ],
)
def test_the_way_to_break_a_zone_is_the_command_that_was_typed(tmp_path: Path, typed: list[str], printed: str) -> None:
    (line,) = [line.strip() for line in advice(Layout(tmp_path), typed) if "--break" in line]
    assert line == printed
    words = shlex.split(line)
    assert _parser().parse_args(words[words.index("demo") :]).breaks == ["zone-a:10:30"]
