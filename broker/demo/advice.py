"""Advice: the commands to try next, exactly as they are typed."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from broker.demo.layout import HOST, WAL_TOPIC, Layout


def advice(layout: Layout, started_with: Sequence[str]) -> list[str]:
    """Lines; each command stands alone on its own.  `started_with`: `sys.orig_argv`."""
    first = layout.nodes[0]
    bootstrap = f"{HOST}:{first.port}"
    broken = f'{{"bucket": "{layout.fast_buckets[first.zone].name}", "down": "black_hole"}}'
    return [
        "Try, in another terminal:",
        f"  kcat -b {bootstrap} -L",
        f"  kcat -b {bootstrap} -C -t {WAL_TOPIC} -o -5 -c 5",
        f"  kafka-producer-perf-test.sh --topic {WAL_TOPIC} --num-records 20000 --record-size 1600 --throughput 2000 "
        f"--producer-props bootstrap.servers={layout.bootstrap} acks=all batch.size=32768",
        f"  curl -s {HOST}:{first.metrics_port}/metrics | grep -E 'broker_(cost|replication)'",
        "Break a bucket: press a (and again to heal it), or",
        f"  curl -d '{broken}' {HOST}:{first.metrics_port}/faults",
        "Break a zone, its broker and its bucket: press A, or end this and start with",
        f"  {_again(started_with)} --break zone-a:10:30",
    ]


def _again(started_with: Sequence[str]) -> str:
    """The command line, without the interpreter in front of an installed script."""
    interpreter, *rest = started_with
    is_script = bool(rest) and Path(rest[0]).name == "wherry"
    return shlex.join(rest if is_script else [interpreter, *rest])
