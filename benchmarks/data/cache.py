"""The cache of a node under four processes, kills and flipped bits, in memory (row DL5, seed 62).

Bounds: one download a shard, one more a kill, no wrong byte of 10,000 flips, never above its bytes and one shard. The
flips hit files of the cache, what a store answers, and files whose times lie, which `verify` finds.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

from gangline.data.cache import ShardCache
from gangline.spec.dataset import DatasetShard

SEED, PROCESSES, SHARDS, KILLS, FLIPS = 62, 4, 200, 40, 10_000
SHARD_BYTES = 32_768
fork = get_context("fork")


def content(number: int) -> bytes:
    return random.Random(f"{SEED}-{number}").randbytes(SHARD_BYTES)


CONTENT = {sha256(content(number)).hexdigest(): content(number) for number in range(SHARDS)}
ALL = [
    DatasetShard(path=f"{number:06d}.arrow", sha256=digest, size_bytes=SHARD_BYTES, rows=1)
    for number, digest in enumerate(CONTENT)
]


class Store:
    """Appends a byte to a file for each download, which a kill does not take back."""

    def __init__(self, log: Path, *, seconds: float = 0.001) -> None:
        self._log, self._seconds = log, seconds

    def __call__(self, shard: DatasetShard) -> Iterator[bytes]:
        with self._log.open("ab") as file:
            file.write(b".")
        data = CONTENT[shard.sha256]
        for at in range(0, len(data), 8192):
            time.sleep(self._seconds / 4)
            yield data[at : at + 8192]

    @property
    def downloads(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0


def reader(folder: Path, log: Path, seed: int, most_bytes: float, opens: int) -> None:
    """One process: opens shards in an order of its own; its exit code says whether a byte was wrong."""
    cache, draws = ShardCache(folder, most_bytes, Store(log)), random.Random(seed)
    order = draws.sample(ALL, len(ALL)) * (opens // len(ALL) + 1)
    for shard in order[:opens]:
        if cache.file(shard).read_bytes() != CONTENT[shard.sha256]:
            os._exit(50)
        cache.hold(())
    os._exit(0)


def size_of(folder: Path) -> int:
    total = 0
    for entry in os.scandir(folder):
        if not entry.name.endswith(".lock"):
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue
    return total


def read_together(folder: Path, log: Path, *, most_bytes: float, opens: int, kills: int) -> dict[str, int]:
    """Four processes, some of which are killed and replaced; downloads, wrong exits and the largest size seen."""
    draws, left, largest, wrong = random.Random(SEED), kills, 0, 0
    started = iter(range(10**6))

    def start():
        process = fork.Process(target=reader, args=(folder, log, next(started), most_bytes, opens))
        process.start()
        return process

    folder.mkdir()
    running = [start() for _ in range(PROCESSES)]
    while running:
        time.sleep(0.004 + 0.02 * draws.random())
        largest = max(largest, size_of(folder))
        if left and draws.random() < 0.8:
            victim = running.pop(draws.randrange(len(running)))
            if victim.is_alive():
                os.kill(victim.pid, signal.SIGKILL)
                left -= 1
            victim.join()
            running.append(start())
        ended = [each for each in running if not each.is_alive()]
        wrong += sum(each.exitcode not in (0, -signal.SIGKILL) for each in ended)
        running = [each for each in running if each not in ended]
        if not running and left:
            running = [start() for _ in range(PROCESSES)]
    return {"downloads": Store(log).downloads, "kills": kills - left, "wrong": wrong, "largest_bytes": largest}


def flip(folder: Path) -> dict[str, int]:
    """Ten thousand times a bit, or the end of a file, is changed; how many wrong reads came of it."""
    draws, wrong, hidden = random.Random(SEED), 0, 0
    answers: list[bytes] = []

    def fetch(shard: DatasetShard) -> Iterator[bytes]:
        yield answers.pop() if answers else CONTENT[shard.sha256]

    for number in range(FLIPS):
        shard = draws.choice(ALL)
        data = bytearray(CONTENT[shard.sha256])
        data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        changed = bytes(data if number % 7 else data[: draws.randrange(len(data))])
        cache, path = ShardCache(folder, 1e12, fetch), folder / shard.sha256
        if number % 3 == 0:  # in the answer of the store, the file is not there
            path.unlink(missing_ok=True)
            answers.append(changed)
        else:  # in the file, by a write
            cache.file(shard)
            stamp = path.stat().st_mtime_ns
            path.chmod(0o644)
            path.write_bytes(changed)
            if number % 3 == 2 and len(changed) == SHARD_BYTES:  # on the disk: times do not change
                os.utime(path, ns=(stamp, stamp))
                hidden += 1
                wrong += shard.sha256 not in (
                    ShardCache(folder, 1e12, fetch).verify()[1] if number % 30 == 2 else one(path)
                )
        cache = ShardCache(folder, 1e12, fetch)
        wrong += cache.file(shard).read_bytes() != CONTENT[shard.sha256]
        cache.close()
        answers.clear()
    return {"flips": FLIPS, "wrong": wrong, "that_only_verify_sees": hidden}


def one(path: Path) -> list[str]:
    """What `verify` does with one file, without the others."""
    right = sha256(path.read_bytes()).hexdigest() == path.name
    if not right:
        path.unlink()
    return [] if right else [path.name]


def main() -> int:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        place = Path(name)
        plain = read_together(place / "a", place / "a.log", most_bytes=1e12, opens=SHARDS, kills=0)
        killed = read_together(place / "b", place / "b.log", most_bytes=1e12, opens=SHARDS, kills=KILLS)
        bound = 20 * SHARD_BYTES
        small = read_together(place / "c", place / "c.log", most_bytes=bound, opens=2 * SHARDS, kills=10)
        flipped = flip(place / "d")
    result = {
        "seed": SEED,
        "shards": SHARDS,
        "plain": plain,
        "killed": killed,
        "small": small | {"bytes": bound},
        "flipped": flipped,
    }
    met = (
        plain["downloads"] == SHARDS
        and killed["downloads"] <= SHARDS + killed["kills"]
        and small["largest_bytes"] <= bound + SHARD_BYTES
        and not any(each["wrong"] for each in (plain, killed, small, flipped))
    )
    text = json.dumps(result | {"met": met})
    print(text)
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data-cache.json").write_text(text + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
