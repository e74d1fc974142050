"""Apache Kafka's own tools, from the jars that `make java-tools` collects."""

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
VERSION = os.environ.get("KAFKA_VERSION", "4.4.0")
CACHE = ROOT / ".cache"
JARS = CACHE / f"kafka-{VERSION}"
TOOLS = "org.apache.kafka.tools"


def why_not_available() -> str | None:
    """None when the tools can run, else the sentence a skipped test shows."""
    if shutil.which("java") is None:
        return "java is missing"
    if not (JARS / ".complete").exists():
        return f"Apache Kafka {VERSION} is not in .cache: run `make java-tools` (needs Maven)"
    return None


def command(tool: str, *arguments: str, heap: str = "256m") -> list[str]:
    """The command line of a tool; `tool` is a class name below org.apache.kafka.tools."""
    return [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={ROOT / 'tests/java/log4j2.properties'}",
        "-cp",
        f"{JARS}/*",
        f"{TOOLS}.{tool}",
        *arguments,
    ]


def run(
    tool: str,
    *arguments: str,
    timeout_s: float = PATIENCE_S,
    stdin: str | None = None,
    check: bool = True,
    heap: str = "256m",
    with_errors: bool = True,
) -> str:
    """Run a tool to its end; returns what it printed, and fails with it on a non-zero exit.

    `with_errors` adds the error stream behind the output.
    """
    done = subprocess.run(
        command(tool, *arguments, heap=heap),
        input=stdin,
        text=True,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    output = done.stdout + done.stderr
    assert not check or done.returncode == 0, f"{tool} {' '.join(arguments)} exited {done.returncode}:\n{output}"
    return output if with_errors else done.stdout


def run_until(tool: str, *arguments: str, line: str, timeout_s: float = PATIENCE_S) -> str:
    """Run a tool that does not end by itself until a line of its output matches; returns what it had printed."""
    done = subprocess.Popen(command(tool, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    giving_up = threading.Timer(timeout_s, done.kill)
    giving_up.start()
    output = ""
    try:
        assert done.stdout is not None
        for each in done.stdout:
            output += each
            if re.search(line, each):
                return output
    finally:
        giving_up.cancel()
        done.kill()
        done.wait()
    raise AssertionError(f"{tool} {' '.join(arguments)} never printed {line!r}:\n{output}")


def server_command(version: str, main: str, *arguments: str, home: Path, heap: str = "192m") -> list[str]:
    """The command line of a server, or of what formats it, of any version; it may write below `home`."""
    return [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dpeer.log.level=info",
        f"-Dkafka.logs.dir={home}",
        f"-Dlog4j2.configurationFile={ROOT / 'tests/java/log4j2.properties'}",
        "-cp",
        f"{jars_of(version)}/*",
        main,
        *arguments,
    ]


def jars_of(version: str) -> Path:
    """Where `make java-tools KAFKA_VERSION=version` puts them."""
    return CACHE / f"kafka-{version}"
