"""Write `outcomes.tsv` anew: every recorded request is sent to a fresh Apache Kafka.

make java-tools KAFKA_VERSION=4.3.1
KAFKA_VERSION=4.3.1 .venv/bin/python -m tests.golden.requests.judge
"""

import tempfile
from pathlib import Path

from tests.support import java_tools
from tests.support.kafka_peer import KafkaPeer

from . import outcomes


def main() -> None:
    reason = java_tools.why_not_available()
    if reason is not None:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as directory, KafkaPeer(Path(directory)) as peer:
        rows = list(outcomes.outcomes(peer.port))
    heading = f"# How Apache Kafka {java_tools.VERSION} answers each recorded request (made by judge.py)."
    lines = [heading, *("\t".join(row) for row in rows)]
    outcomes.TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
