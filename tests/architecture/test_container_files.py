"""The image's packages are the locked ones, and the images tests make stand for those the compose files name."""

import re
import tomllib

from .source_tree import ROOT

_PIN = re.compile(r"^([\w-]+)==(\S+)((?: \\\n    --hash=\S+)+)", re.M)
_NAME = re.compile(r"[\w-]+")


def _pins(name: str) -> dict[str, tuple[str, str]]:
    """Version and hashes by package."""
    return {package: (version, hashes) for package, version, hashes in _PIN.findall((ROOT / name).read_text())}


def _default(name: str, variable: str) -> str:
    """What a compose file says where a variable is not set."""
    found = re.findall(rf"\$\{{{variable}:-(\S+?)\}}", (ROOT / name).read_text())
    assert len(set(found)) == 1, (name, variable, found)
    return str(found[0])


def test_what_the_image_installs_is_locked_as_everything_else_is() -> None:
    runtime, everything = _pins("requirements-runtime.lock"), _pins("requirements.lock")
    assert runtime
    differing = [package for package, pin in runtime.items() if everything.get(package) != pin]
    assert not differing, f"run `make lock`: {differing}"


def test_every_dependency_is_in_the_image() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {found[0] for each in dependencies if (found := _NAME.match(each))}
    assert names <= _pins("requirements-runtime.lock").keys(), "run `make lock`"


def test_the_images_tests_make_are_those_that_are_used() -> None:
    script = (ROOT / "tests/containers/local-docker.sh").read_text()
    made = dict(re.findall(r"^(\w+_IMAGE)=\$\{\w+:-(\S+)\}$", script, re.M))
    version = re.search(r"^KAFKA_VERSION=\$\{KAFKA_VERSION:-(\S+)\}$", script, re.M)
    assert version is not None
    kafka = made.pop("KAFKA_IMAGE").replace("$KAFKA_VERSION", version[1])
    assert kafka == _default("docker-compose.yml", "KAFKA_IMAGE") == _default("docker-compose.kraft.yml", "KAFKA_IMAGE")
    assert f"ARG PYTHON_IMAGE={made.pop('PYTHON_IMAGE')}\n" in (ROOT / "Dockerfile").read_text()
    assert made == {name: _default("docker-compose.yml", name) for name in ("SEAWEEDFS_IMAGE", "PROMETHEUS_IMAGE")}
