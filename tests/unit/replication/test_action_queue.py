from broker.replication.action_queue import ActionQueue
from tests.support.builders import settle
from tests.support.sim_loop import SimLoop, simulate


def test_actions_run_in_the_next_turn_each_once() -> None:
    async def story(loop: SimLoop) -> None:
        queue, done = ActionQueue(), []
        queue.add(lambda: done.append(1))
        queue.add(lambda: done.append(2))
        assert done == []
        await settle()
        assert done == [1, 2]

    simulate(story)


def test_run_does_not_wait_for_the_turn_and_runs_what_actions_add() -> None:
    async def story(loop: SimLoop) -> None:
        queue, done = ActionQueue(), []
        queue.add(lambda: queue.add(lambda: done.append("added")))
        queue.run()
        assert done == ["added"]
        await settle()
        queue.add(lambda: done.append("later"))
        await settle()
        assert done == ["added", "later"]

    simulate(story)
