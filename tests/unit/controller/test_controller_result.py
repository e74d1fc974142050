from broker.controller.controller_result import ControllerResult


def test_results_are_atomic_unless_said_otherwise() -> None:
    assert ControllerResult((), 1).is_atomic
    assert not ControllerResult((), 1, is_atomic=False).is_atomic
