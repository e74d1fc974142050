"""The Docker engine that tests use, if one answers."""

import functools
import shutil
import subprocess

from tests.support.patience import PATIENCE_S

HOW = "start one, or `tests/containers/local-docker.sh up` (Debian, as root) and set DOCKER_HOST as it says"


@functools.cache
def why_not_available() -> str | None:
    """None when containers can be started here, else the sentence a skipped test shows."""
    if shutil.which("docker") is None:
        return f"no Docker is installed: {HOW}"
    if not _succeeds("docker", "info"):
        return f"no Docker engine answers: {HOW}"
    if compose_command() is None:
        return "neither `docker compose` nor docker-compose is installed"
    return None


@functools.cache
def compose_command() -> tuple[str, ...] | None:
    """How compose is called here: Docker's plugin, or the program that came before it."""
    if shutil.which("docker") and _succeeds("docker", "compose", "version"):
        return ("docker", "compose")
    return ("docker-compose",) if shutil.which("docker-compose") else None


def docker(*arguments: str, timeout_s: float = PATIENCE_S) -> str:
    """Run `docker`; returns what it printed, and fails with that and its errors on a non-zero exit."""
    done = subprocess.run(("docker", *arguments), capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)} exited {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
