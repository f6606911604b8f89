"""Workers that are silent, back or slow are told once each."""

from tests.train.parameters.objects import World, change_of

from gangline.train.parameters.server import BLOCKS_OF_SILENCE, FEWEST_BLOCKS, SILENT_SECONDS, WorkerWatch


def pushes_of(tmp_path, *rows):
    """A push for each (worker, seconds)."""
    world = World(tmp_path, steps=400)
    return [
        world.push(block, change_of(block), worker=worker, seconds=seconds, **changes)
        for block, (worker, seconds, *rest) in enumerate(rows)
        for changes in [rest[0] if rest else {}]
    ]


def told(watch, pushes, now):
    return [(name, fields["worker"]) for name, fields in watch.see(pushes, now=now)]


def test_silence_is_an_event_once_and_its_end_with_the_time_without_the_store(tmp_path):
    first, back = pushes_of(tmp_path, (1, 1.0), (2, 1.0, {"silent_seconds": 80.0}))
    watch = WorkerWatch(2, now=0.0)
    assert told(watch, [first], 10.0) == []
    assert told(watch, [first], SILENT_SECONDS + 1) == [("worker_silent", 2)]
    assert told(watch, [first], SILENT_SECONDS + 2) == []
    assert watch.longest_silence(70.0) == (2, 70.0)
    ((name, fields),) = watch.see([back], now=90.0)
    assert (name, fields) == ("worker_back", {"worker": 2, "seconds": 90.0, "without_store": 80.0})
    assert told(watch, [back], 95.0) == []


def test_worker_with_long_blocks_is_not_silent(tmp_path):
    (long,) = pushes_of(tmp_path, (1, 100.0))
    watch = WorkerWatch(2, now=0.0)
    assert told(watch, [long], BLOCKS_OF_SILENCE * 100.0) == []
    assert told(watch, [long], BLOCKS_OF_SILENCE * 100.0 + 1) == [("worker_silent", 2)]


def test_worker_that_joined_is_not_missed(tmp_path):
    own, joined = pushes_of(tmp_path, (1, 1.0), (3, 1.0))
    watch = WorkerWatch(1, now=0.0)
    assert told(watch, [own, joined], 1.0) == []
    assert told(watch, [own], 1000.0) == []


def test_slow_worker_is_named_once_and_not_before_there_are_enough_blocks(tmp_path):
    pushes = pushes_of(
        tmp_path, *((worker, 3.0 if worker == 2 else 1.0) for _ in range(2 * FEWEST_BLOCKS) for worker in (1, 2, 3))
    )
    watch = WorkerWatch(3, now=0.0)
    few = 3 * (FEWEST_BLOCKS - 1)
    assert told(watch, pushes[:few], 1.0) == []
    assert told(watch, pushes[few:], 2.0) == [("worker_slow", 2)]
    assert told(watch, pushes, 3.0) == []


def test_equal_workers_are_not_slow_whatever_one_block_takes(tmp_path):
    rows = [(worker, 30.0 if number == worker else 1.0) for number in range(2 * FEWEST_BLOCKS) for worker in (1, 2)]
    watch = WorkerWatch(2, now=0.0)
    assert told(watch, pushes_of(tmp_path, *rows), 1.0) == []
