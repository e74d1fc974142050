from broker.metadata.overlay import Overlay


def test_changes_leave_the_base_alone() -> None:
    base = {"a": 1, "b": 2}
    overlay = Overlay(base)
    overlay.set("c", 3)
    overlay.remove("a")
    assert (overlay.get("a"), overlay.get("b"), overlay.get("c")) == (None, 2, 3)
    assert overlay.changes == {"c": 3, "a": None}
    assert overlay.apply() == {"b": 2, "c": 3}
    assert base == {"a": 1, "b": 2}


def test_without_changes_the_base_is_the_result() -> None:
    base = {"a": 1}
    overlay = Overlay(base)
    overlay.set("b", 2)
    overlay.remove("b")
    assert overlay.apply() is base


def test_between_finds_exactly_the_differences() -> None:
    overlay = Overlay.between({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": 5})
    assert overlay.changes == {"a": None, "c": 4, "d": 5}
    assert overlay.apply() == {"b": 2, "c": 4, "d": 5}
