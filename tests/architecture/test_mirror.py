"""Unit tests mirror the product file by file: whoever changes a module knows where its tests are."""

from pathlib import Path

from .source_tree import PACKAGE, ROOT, modules

_WITHOUT_TEST = {"__init__.py", "__main__.py"}


def _test_of(module: Path) -> Path:
    place = module.relative_to(PACKAGE)
    return ROOT / "tests" / "unit" / place.parent / f"test_{place.name}"


def test_every_module_has_its_unit_test() -> None:
    missing = [
        str(_test_of(module).relative_to(ROOT))
        for module in modules()
        if module.name not in _WITHOUT_TEST and not _test_of(module).exists()
    ]
    assert not missing, "\n".join(missing)


def test_every_unit_test_has_its_module() -> None:
    expected = {_test_of(module) for module in modules()}
    strangers = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
        if path not in expected
    ]
    assert not strangers, "\n".join(strangers)
