"""Waits return what they waited for, and say in vain what they waited for and what they found."""

import pytest

from tests.support.patience import eventually, until


def test_what_is_so_comes_back_and_what_is_not_is_told() -> None:
    answers = iter(["", "", "yes"])
    assert until(lambda: next(answers), "an answer", every_s=0) == "yes"
    with pytest.raises(AssertionError, match=r"^not within 0\.01 s: an answer; but silence$"):
        until(lambda: None, "an answer", lambda: "silence", patience_s=0.01)
    with pytest.raises(AssertionError, match=r"^not within 0\.01 s: an answer$"):
        until(lambda: None, "an answer", patience_s=0.01)


async def test_on_a_loop_it_is_the_same() -> None:
    answers = iter(["", "", "yes"])

    async def ask() -> str:
        return next(answers)

    assert await eventually(ask, "an answer", every_s=0) == "yes"
    assert await eventually(lambda: 5, "a number") == 5
    with pytest.raises(AssertionError, match=r"^not within 0\.01 s: an answer; but silence$"):
        await eventually(lambda: None, "an answer", lambda: "silence", patience_s=0.01)
