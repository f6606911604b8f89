"""The node cache: one download, right bytes only, within its size, whatever is killed, flipped or full."""

import errno
import multiprocessing
import os
import signal
import time
from hashlib import sha256
from pathlib import Path

import pytest

from gangline.data import cache
from gangline.data.cache import ShardCache
from gangline.errors import IntegrityError, StorageError
from gangline.spec.dataset import DatasetShard

SIZE = 1000


def content(number, size=SIZE):
    return (sha256(str(number).encode()).digest() * (size // 32 + 1))[:size]


def shard(number, size=SIZE):
    data = content(number, size)
    return DatasetShard(path=f"{number:06d}.arrow", sha256=sha256(data).hexdigest(), size_bytes=size, rows=1)


SHARDS = [shard(number) for number in range(12)]
CONTENT = {each.sha256: content(number) for number, each in enumerate(SHARDS)}


class Store:
    """Counts what is fetched."""

    def __init__(self):
        self.fetched = []

    def __call__(self, shard):
        self.fetched.append(shard.path)
        data = CONTENT[shard.sha256]
        yield from (data[at : at + 300] for at in range(0, len(data), 300))


@pytest.fixture
def store():
    return Store()


def opened(tmp_path, store, most_bytes=1e9, **options):
    return ShardCache(tmp_path / "cache", most_bytes, store, **options)


def sizes(folder):
    return sum(each.stat().st_size for each in folder.iterdir() if each.suffix != ".lock")


def test_a_shard_is_fetched_once_and_has_its_bytes(tmp_path, store):
    cache = opened(tmp_path, store)
    for _ in range(2):
        for each in SHARDS:
            assert cache.file(each).read_bytes() == CONTENT[each.sha256]
    other = opened(tmp_path, store)
    assert other.file(SHARDS[3]).read_bytes() == CONTENT[SHARDS[3].sha256]
    assert sorted(store.fetched) == [each.path for each in SHARDS]


def test_it_says_what_was_fetched_and_what_was_there(tmp_path, store):
    told = []
    one = opened(tmp_path, store, tell=lambda name, **fields: told.append((name, fields)))
    one.file(SHARDS[0])
    one.hold(())
    one.file(SHARDS[0])
    one.file(SHARDS[1])
    one.close()
    assert [name for name, _ in told] == ["shards", "shards"]
    assert [(each["bytes"], each["fetched"], each["cached"]) for _, each in told] == [(SIZE, 1, 0), (SIZE, 1, 1)]
    assert all(each["seconds"] >= 0 for _, each in told)


def test_the_least_recently_opened_go_first_and_its_size_is_a_limit(tmp_path, store):
    cache = opened(tmp_path, store, 3 * SIZE)
    for number in (0, 1, 2, 0, 3):
        cache.file(SHARDS[number])
        cache.hold(())
        time.sleep(0.002)
        assert sizes(tmp_path / "cache") <= 3 * SIZE
    cache.file(SHARDS[0])
    assert store.fetched == ["000000.arrow", "000001.arrow", "000002.arrow", "000003.arrow"]
    cache.file(SHARDS[1])
    assert store.fetched[-1] == "000001.arrow"


def test_shards_of_an_open_window_are_not_evicted_by_any_process(tmp_path, store):
    mine, other = opened(tmp_path, store, 3 * SIZE), opened(tmp_path, store, 3 * SIZE)
    window = [mine.file(each) for each in SHARDS[:2]]
    mine.hold(SHARDS[:2])
    for each in SHARDS[2:8]:
        other.file(each)
        other.hold(())
    assert [path.read_bytes() for path in window] == [content(0), content(1)]
    mine.hold(())
    other.file(SHARDS[8])
    other.file(SHARDS[9])
    assert not all(path.exists() for path in window)


def test_what_the_window_leaves_no_room_for_is_read_through_with_one_event(tmp_path, store):
    told = []
    cache = opened(tmp_path, store, 2 * SIZE, tell=lambda name, **fields: told.append((name, fields)))
    paths = [cache.file(each) for each in SHARDS[:5]]
    assert [path.read_bytes() for path in paths] == [content(number) for number in range(5)]
    assert sizes(tmp_path / "cache") == 2 * SIZE
    assert [name for name, _ in told] == ["cache"]
    assert str(tmp_path / "cache") in told[0][1]["folder"]
    handles = len(list(Path("/proc/self/fd").iterdir()))
    cache.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == handles - 5


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_disk_that_takes_nothing_is_read_through_with_one_event(tmp_path, store, monkeypatch, number):
    def fails(*arguments):
        raise OSError(number, os.strerror(number))

    told = []
    monkeypatch.setattr(cache.os, "truncate", fails)
    here = opened(tmp_path, store, tell=lambda name, **fields: told.append((name, fields)))
    for each in SHARDS[:3]:
        assert here.file(each).read_bytes() == CONTENT[each.sha256]
    assert [name for name, _ in told] == ["cache"]
    assert os.strerror(number) in told[0][1]["reason"]


def test_a_changed_file_is_fetched_again_and_a_touched_one_is_not(tmp_path, store):
    path = opened(tmp_path, store).file(SHARDS[0])
    path.chmod(0o644)
    os.utime(path)
    assert opened(tmp_path, store).file(SHARDS[0]).read_bytes() == content(0)
    assert len(store.fetched) == 1
    path.write_bytes(content(1))  # of the same size
    assert opened(tmp_path, store).file(SHARDS[0]).read_bytes() == content(0)
    path.write_bytes(b"short")
    assert opened(tmp_path, store).file(SHARDS[0]).read_bytes() == content(0)
    assert len(store.fetched) == 3


def test_a_link_in_place_of_a_shard_is_not_followed(tmp_path, store):
    (tmp_path / "cache").mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(content(0))
    (tmp_path / "cache" / SHARDS[0].sha256).symlink_to(outside)
    path = opened(tmp_path, store).file(SHARDS[0])
    assert path.read_bytes() == content(0)
    assert not path.is_symlink()
    assert len(store.fetched) == 1
    assert outside.exists()


def test_wrong_bytes_are_fetched_once_more_and_then_refused_with_both_digests(tmp_path, store):
    answers = [content(1), content(0)]
    right = ShardCache(tmp_path / "cache", 1e9, lambda each: iter([answers.pop(0)]))
    assert right.file(SHARDS[0]).read_bytes() == content(0)
    for wrong in (content(1), b"", content(0)[:-1], content(0) + b"x"):
        tries = []
        bad = ShardCache(tmp_path / "bad", 1e9, lambda each, data=wrong, log=tries: iter([log.append(1) or data]))
        with pytest.raises(IntegrityError, match=SHARDS[0].sha256) as caught:
            bad.file(SHARDS[0])
        assert SHARDS[0].path in str(caught.value)
        assert len(tries) == 2
        assert sizes(tmp_path / "bad") == 0


def test_a_store_that_is_away_leaves_nothing_behind(tmp_path):
    def away(shard):
        yield content(0)[:100]
        raise StorageError("away")

    with pytest.raises(StorageError, match="away"):
        ShardCache(tmp_path / "cache", 1e9, away).file(SHARDS[0])
    assert sizes(tmp_path / "cache") == 0


def test_half_a_file_of_a_killed_process_is_replaced_and_does_not_count_for_ever(tmp_path, store):
    here = tmp_path / "cache"
    here.mkdir()
    for number in (0, 7):
        (here / f"{SHARDS[number].sha256}.part").write_bytes(b"x" * SIZE)
    cache = opened(tmp_path, store, 2 * SIZE)
    assert cache.file(SHARDS[0]).read_bytes() == content(0)
    assert cache.file(SHARDS[1]).read_bytes() == content(1)
    assert not list(here.glob("*.part"))


def test_verify_hashes_all_and_deletes_what_is_wrong(tmp_path, store):
    cache = opened(tmp_path, store)
    paths = [cache.file(each) for each in SHARDS[:3]]
    stamp = paths[1].stat().st_mtime_ns
    paths[1].chmod(0o644)
    paths[1].write_bytes(content(5))
    os.utime(paths[1], ns=(stamp, stamp))  # as a disk loses bits: no time changes
    assert cache.verify() == (3, [SHARDS[1].sha256])
    assert opened(tmp_path, store).file(SHARDS[1]).read_bytes() == content(1)


def test_without_a_number_of_bytes_a_fifth_of_the_disk_stays_free(tmp_path, store, monkeypatch):
    usage = type("Usage", (), {"total": 10 * SIZE, "used": 6 * SIZE})
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: usage)
    here = opened(tmp_path, store, None)
    here.file(SHARDS[0])
    usage.used = 7 * SIZE
    here.file(SHARDS[1])
    here.hold(())
    usage.used = 8 * SIZE
    here.file(SHARDS[2])
    assert sizes(tmp_path / "cache") == 2 * SIZE


def _process(folder, log, seed, rounds):
    def fetch(each):
        with log.open("a") as file:
            file.write(f"{each.path}\n")
        time.sleep(0.001)
        yield CONTENT[each.sha256]

    cache = ShardCache(folder, 6 * SIZE, fetch)
    order = sorted(range(12), key=lambda number: sha256(f"{seed}-{number}".encode()).digest())
    for number in order * rounds:
        if cache.file(SHARDS[number]).read_bytes() != content(number):
            os._exit(50)
        if sizes_now(folder) > 7 * SIZE:
            os._exit(51)
        cache.hold(())
    os._exit(0)


def sizes_now(folder):
    total = 0
    for each in os.scandir(folder):
        if not each.name.endswith(".lock"):
            try:
                total += each.stat().st_size
            except FileNotFoundError:
                continue
    return total


def test_processes_share_one_download_and_kills_cost_one_each(tmp_path):
    context = multiprocessing.get_context("fork")

    def run(folder, log, rounds, kills=0, limit=6):
        processes = [context.Process(target=_process, args=(folder, log, seed, rounds)) for seed in range(4)]
        for each in processes:
            each.start()
        for each in processes[:kills]:
            time.sleep(0.01)
            os.kill(each.pid, signal.SIGKILL)
        for each in processes:
            each.join(60)
        return [each.exitcode for each in processes]

    assert run(tmp_path / "a", tmp_path / "a.log", 4, kills=2)[2:] == [0, 0]
    folder, log = tmp_path / "b", tmp_path / "b.log"
    processes = [context.Process(target=_whole, args=(folder, log, seed)) for seed in range(4)]
    for each in processes:
        each.start()
    for each in processes:
        each.join(60)
    assert [each.exitcode for each in processes] == [0] * 4
    assert sorted(log.read_text().split()) == [each.path for each in SHARDS]


def _whole(folder, log, seed):
    def fetch(each):
        with log.open("a") as file:
            file.write(f"{each.path}\n")
        time.sleep(0.002)
        yield CONTENT[each.sha256]

    here = ShardCache(folder, 1e9, fetch)
    for number in range(12):
        if here.file(SHARDS[(number + 3 * seed) % 12]).read_bytes() != content((number + 3 * seed) % 12):
            os._exit(50)
    os._exit(0)
