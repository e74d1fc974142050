"""Faults under load, as often and as long as wanted: `make chaos`.

    python -m tests.cluster.chaos kill --seconds 600               kill -9 of a random node every 10 s for 10 minutes
    python -m tests.cluster.chaos pause --seconds 600              SIGSTOP for 15 s
    python -m tests.cluster.chaos cut --seconds 600                links cut by relays, in one direction or both
    python -m tests.cluster.chaos roll                             every node stopped in order and started, one by one
    python -m tests.cluster.chaos kill cut --dedicated-controller  mixed; the controller in a process of its own
    python -m tests.cluster.chaos kill --quorum 4.4.0              our brokers, three controllers of Apache Kafka
    python -m tests.cluster.chaos kill --apache                    Apache Kafka's brokers in our place

Exit code 1 when a promise was broken; the table and, with `--save`, everything that is known are printed.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.chaos_run import ChaosRun, Outcome, Plan, table
from tests.support import java_tools

HOLD_S = {"kill": 0.0, "pause": 15.0, "cut": 12.0, "roll": 0.0, "bucket": 15.0, "zone": 12.0}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=sorted(HOLD_S))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults go on")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between the beginnings of two faults")
    parser.add_argument("--hold", type=float, help="seconds a pause or a cut lasts (default: 15 and 12)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--dedicated-controller", action="store_true")
    parser.add_argument("--spare-controller", action="store_true", help="a dedicated controller is no victim")
    parser.add_argument("--quorum", metavar="VERSION", help="three controllers of Apache Kafka, which are hit as well")
    parser.add_argument("--apache", action="store_true", help="Apache Kafka's brokers (needs `make java-tools`)")
    parser.add_argument("--no-java", action="store_true", help="no Java client in the load")
    parser.add_argument("--rate", type=int, default=200, help="records a second of each producer")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--acks", choices=["all", "1"], default="all", help="1: losses are to be expected, and found")
    parser.add_argument("--wal", action="store_true", help="followers take the records from buckets (KIP-1176)")
    parser.add_argument("--plant", action="store_true", help="at the end plant a duplicate and a loss, to be found")
    parser.add_argument("--setting", action="append", default=[], help="NAME=VALUE for every node; repeatable")
    parser.add_argument("--save", type=Path, help="a JSON file for everything that is known of the run")
    parser.add_argument("--directory", type=Path, help="where nodes keep their data; kept when given")
    return parser.parse_args(arguments)


def plan_of(arguments: argparse.Namespace) -> Plan:
    hold = arguments.hold
    return Plan(
        kinds={kind: HOLD_S[kind] if hold is None or not HOLD_S[kind] else hold for kind in arguments.kinds},
        seconds=arguments.seconds,
        every_s=arguments.every,
        seed=arguments.seed,
        is_apache=arguments.apache,
        quorum=arguments.quorum,
        dedicated_controller=arguments.dedicated_controller,
        hits_controller=not arguments.spare_controller,
        partitions=arguments.partitions,
        java_producers=0 if arguments.no_java or java_tools.why_not_available() else 1,
        rate=arguments.rate,
        acks=arguments.acks,
        topic_config={} if arguments.acks == "all" else {"min.insync.replicas": "1"},
        settings=dict(setting.split("=", 1) for setting in arguments.setting),
        is_through_bucket=arguments.wal,
    )


def plant(run: ChaosRun) -> list[str]:
    """What the judge overlooked of what was planted."""
    overlooked = []
    run.plant_duplicate()
    if run.judge_again().duplicates != 1:
        overlooked.append("a planted duplicate was not found")
    run.plant_loss()
    if run.judge_again().lost < 1:
        overlooked.append("a planted loss was not found")
    return overlooked


def execute(arguments: argparse.Namespace, directory: Path) -> Outcome:
    with ChaosRun(plan_of(arguments), directory) as run:
        outcome = run.judged()
        if arguments.plant:
            outcome.other += plant(run)
        run.stop_and_compare()
    return outcome


def main() -> None:
    arguments = parse()
    reason = java_tools.why_not_available()
    if arguments.apache and reason is not None:
        sys.exit(f"chaos: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("chaos: told to stop"))  # and take the nodes along
    print(f"seed {arguments.seed}", file=sys.stderr, flush=True)
    if arguments.directory is not None:
        outcome = execute(arguments, arguments.directory)
    else:
        with tempfile.TemporaryDirectory() as name:
            outcome = execute(arguments, Path(name))
    if arguments.save is not None:
        arguments.save.write_text(outcome.as_json() + "\n")
    print(table([outcome]))
    print("complaints:", {who: what for who, what in outcome.complaints.items() if what})
    for problem in outcome.problems:
        print("PROBLEM:", problem)
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    main()
