"""Workers and servers as processes on one store."""

from tests.train.parameters.parts import launch_parts, run_plan


def test_two_workers_and_a_server_train_every_block_once(make_gang):
    plan = run_plan()
    parts = launch_parts(make_gang, plan)
    codes = {number: generation.wait() for number, (_, generation) in parts.items()}
    assert codes == {0: [0], 1: [0], 2: [0]}, [gang.log() for gang, _ in parts.values()]
    servers = parts[0][0]
    result = servers.result()
    assert (result.final_step, result.jobs[0].step) == (8, 8)
    assert result.checkpoint == f"{plan.run_prefix}/checkpoints/step-00000008"
    assert [each["step"] for each in servers.metrics()] == sorted({each["step"] for each in servers.metrics()})
    pushed = [each["block"] for number in (1, 2) for each in parts[number][0].events(event="block_pushed")]
    assert sorted(pushed) == [0, 1, 2, 3]
