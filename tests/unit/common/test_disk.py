import threading

import pytest

from broker.common.disk import InlineDiskExecutor, ThreadDiskExecutor


def failing() -> None:
    raise OSError("disk gone")


async def test_threads_run_functions_off_the_loop() -> None:
    executor = ThreadDiskExecutor(threads=1)
    try:
        assert await executor.run(lambda value, by: value + by, 1, by=2) == 3
        assert (await executor.run(threading.current_thread)).name.startswith("disk")
        with pytest.raises(OSError, match="disk gone"):
            await executor.run(failing)
    finally:
        executor.close()


async def test_closing_waits_for_what_was_submitted() -> None:
    executor = ThreadDiskExecutor(threads=1)
    done: list[int] = []
    futures = [executor.submit(done.append, number) for number in range(5)]
    executor.close()
    assert done == [0, 1, 2, 3, 4]
    for future in futures:
        assert await future is None


async def test_inline_runs_at_once_in_the_caller() -> None:
    executor = InlineDiskExecutor()
    done: list[int] = []
    future = executor.submit(done.append, 1)
    assert done == [1]
    assert await future is None
    assert await executor.run(threading.current_thread) is threading.current_thread()


async def test_inline_hands_errors_to_whoever_awaits() -> None:
    future = InlineDiskExecutor().submit(failing)
    with pytest.raises(OSError, match="disk gone"):
        await future
