"""What is in the package beside modules comes with it when it is installed."""

import tomllib

from .source_tree import PACKAGE, ROOT

_FOR_READERS = {"README.md"}


def test_every_file_of_the_package_is_shipped() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["broker"]
    files = {
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and path.name not in _FOR_READERS
    }
    shipped = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert len(files) > 3
    assert not sorted(str(path.relative_to(ROOT)) for path in files - shipped)
    assert all(any(PACKAGE.glob(pattern)) for pattern in patterns), "a pattern of nothing"
