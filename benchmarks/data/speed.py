"""Samples per second of packed shards against torch's DataLoader, litdata and files read one by one (DL3, seed 28).

Bounds: 1.0 of a DataLoader that shuffles the same Arrow files, 1.0 of litdata on the same samples, 1.2 of a DataLoader
that reads each sample as an object of the same S3 server by fsspec, through a proxy that delays and throttles. Arms
take turns; a ratio is the median of those of the rounds. Run it on a machine without other work.

litdata has an environment of its own, for its boto3 wants an older python-dateutil than our locks have:
`uv pip install --target FOLDER --no-deps litdata boto3 botocore s3transfer jmespath 'python-dateutil<3' six
lightning-utilities obstore`, then `LITDATA=FOLDER`; without it that row is left out and said so.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import fsspec
import numpy as np
import pyarrow as pa
import torch
from packed import collate, opened, pack
from parts import fetch, s3_server
from torch.utils.data import DataLoader, Dataset

from gangline.data.arrow_rows import ArrowRows
from gangline.data.cache import ShardCache
from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.spec.dataset import Dataset as Version
from gangline.storage.open import open_store
from gangline.train.loop.batches import StepData

SEED, ROWS, SHARD_BYTES, BATCH, ROUNDS = 28, 16_384, 4_000_000, 64, 5
FILES, DELAY_SECONDS, LINK_BYTES_PER_SECOND = 128, 0.005, 40e6
LITDATA = """
import json, sys, time
import numpy as np, torch
from litdata import StreamingDataLoader, StreamingDataset, optimize
torch.set_num_threads(1)
place, workers = sys.argv[1], int(sys.argv[2])
rows = np.load(place + "/rows.npy", mmap_mode="r")
def sample(index):
    return np.array(rows[index])
if __name__ == "__main__":
    if workers == 0:
        optimize(sample, list(range(len(rows))), place + "/lit", chunk_bytes="4MB", num_workers=1)
    data = StreamingDataset(place + "/lit", shuffle=True, seed=28, transform=lambda row: row.astype("int64"))
    more = {"prefetch_factor": 2} if workers else {}
    loader = StreamingDataLoader(data, batch_size=64, num_workers=workers, **more)
    for line in sys.stdin:
        began, count = time.perf_counter(), 0
        for batch in loader:
            count += len(batch)
        print(json.dumps(count / (time.perf_counter() - began)), flush=True)
"""


class Rows(Dataset[dict[str, Any]]):
    """What one writes for these files without gangline: Arrow files, mapped, their batches kept, rows by number."""

    def __init__(self, paths: Iterable[Path]) -> None:
        files = [pa.ipc.open_file(pa.memory_map(str(path))) for path in paths]
        self._columns = [file.get_batch(n).column("tokens") for file in files for n in range(file.num_record_batches)]
        self._ends = list(accumulate(map(len, self._columns)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = bisect_right(self._ends, index)
        row = self._columns[place][index - (self._ends[place - 1] if place else 0)]
        return {"tokens": row.values.to_numpy().astype("int64")}


class OurRows(Rows):
    """The same by our reader of rows, which keeps arrays of the batches: what the order alone costs."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._files = [ArrowRows(path) for path in paths]
        self._ends = list(accumulate(map(len, self._files)))

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = bisect_right(self._ends, index)
        row = self._files[place][index - (self._ends[place - 1] if place else 0)]
        return {name: value.astype("int64") for name, value in row.items()}


class Objects(Dataset[dict[str, Any]]):
    """Samples that are objects, each read by fsspec."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    def __len__(self) -> int:
        return len(self._urls)

    def __getitem__(self, index: int) -> dict[str, Any]:
        with fsspec.open(self._urls[index], "rb") as file:
            return {"tokens": np.frombuffer(file.read(), np.uint16).astype("int64")}


def per_second(batches: Iterable[torch.Tensor]) -> float:
    """Samples a second, from the first request to the last batch."""
    began, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch)
    return count / (time.perf_counter() - began)


def loader(data: Dataset[dict[str, Any]], workers: int) -> DataLoader[Any]:
    more: dict[str, Any] = {"prefetch_factor": 2} if workers else {}
    return DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=collate, **more)


def ours(
    version: Version, files: Callable[[], ShardCache], workers: int, *, ahead: bool = False
) -> Iterator[torch.Tensor]:
    """An epoch in our order, as a rank reads it."""
    sets = opened(version, files, global_batch=BATCH, ahead=ahead)
    data = StepData(
        sets.train, seed=SEED, global_batch=BATCH, ranks=1, rank=0, micro_batch=BATCH, device=torch.device("cpu"),
        order=sets.order_of(sets.train, seed=SEED, places=range(BATCH)), workers=workers, seeds_samples=True,
    )  # fmt: skip
    cursor = 0
    for _ in range(len(sets.train) // BATCH):
        (_, cursor), batches = data.step(cursor, ())
        yield from (batch["tokens"] for batch in batches)
    data.close()


def local(place: Path, version: Version, workers: int) -> dict[str, list[float]]:
    """Rounds of each arm on files of this disk, in the page cache."""
    paths = [place / "shards" / each.sha256 for each in version.shards]

    def cached() -> ShardCache:
        return ShardCache(place / "cache", 1e12, lambda shard: iter([(place / "shards" / shard.sha256).read_bytes()]))

    found: dict[str, list[float]] = {"ours": [], "torch": [], "reader": [], "litdata": []}
    with litdata(place, workers) as ask:
        for _ in range(ROUNDS + 1):
            found["ours"].append(per_second(ours(version, cached, workers)))
            found["torch"].append(per_second(loader(Rows(paths), workers)))
            found["reader"].append(per_second(loader(OurRows(paths), workers)))
            if ask is not None:
                found["litdata"].append(ask())
    return {name: rates[1:] for name, rates in found.items()}


class litdata:  # noqa: N801  # a context manager
    """A process with litdata that reads an epoch when it is asked; None where it is not installed."""

    def __init__(self, place: Path, workers: int) -> None:
        self._place, self._workers = place, workers
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Callable[[], float] | None:
        folder = os.environ.get("LITDATA")
        if not folder:
            return None
        script = self._place / "rival.py"
        script.write_text(LITDATA)
        environ = os.environ | {"PYTHONPATH": folder, "DO_NOT_TRACK": "1", "HOME": str(self._place)}
        words = [sys.executable, str(script), str(self._place), str(self._workers), str(ROUNDS)]
        self._process = subprocess.Popen(
            words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self._ask

    def _ask(self) -> float:
        assert self._process
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            try:
                return float(json.loads(line))
            except ValueError:
                continue
        raise RuntimeError("litdata ended before it answered")

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def far(place: Path, version: Version, workers: int) -> dict[str, list[float]]:
    """Rounds of both arms on one S3 server behind one slow link, each with an empty cache."""
    found: dict[str, list[float]] = {"ours": [], "files": []}
    with ExitStack() as stack:
        said, url, credentials = stack.enter_context(s3_server(place / "server"))
        endpoint = said.split()[1]
        plain = open_store(url, endpoint=endpoint, credentials=credentials)
        rows = np.load(place / "rows.npy", mmap_mode="r")
        for shard in version.shards:
            plain.put(shard.key, (place / "shards" / shard.sha256).read_bytes())
        for number in range(FILES):
            plain.put(f"files/{number}", rows[number].tobytes())
        parts = urlsplit(endpoint)
        proxy = stack.enter_context(FaultProxy(str(parts.hostname), parts.port or 80))
        proxy.set_rules(
            FaultRule(action="delay", seconds=DELAY_SECONDS, probability=1.0),
            FaultRule(action="throttle", direction="down", bytes_per_second=LINK_BYTES_PER_SECOND, probability=1.0),
        )
        store = open_store(url, endpoint=proxy.endpoint, credentials=credentials)
        urls = [store.presign(f"files/{number}", 3600) for number in range(FILES)]
        for number in range(ROUNDS):
            files = lambda to=place / f"far-{workers}-{number}": ShardCache(to, 1e12, lambda shard: fetch(store, shard))  # noqa: E731
            found["ours"].append(per_second(ours(version, files, workers, ahead=True)))
            found["files"].append(per_second(loader(Objects(urls), workers)))
    return found


def ratio(mine: list[float], theirs: list[float]) -> float | None:
    return round(median(a / b for a, b in zip(mine, theirs, strict=True)), 3) if theirs else None


def main() -> int:
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "seed": SEED,
        "rows": ROWS,
        "batch": BATCH,
        "rounds": ROUNDS,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        version = pack(place / "shards", rows=ROWS, shard_bytes=SHARD_BYTES, seed=SEED)
        np.save(
            place / "rows.npy", np.concatenate([_tokens(place / "shards" / each.sha256) for each in version.shards])
        )
        for workers in (0, 2):
            near = local(place, version, workers)
            result[f"local_{workers}_workers"] = {
                "samples_per_second": round(median(near["ours"])),
                "of_torch": ratio(near["ours"], near["torch"]),
                "of_torch_with_our_reader": ratio(near["ours"], near["reader"]),
                "of_litdata": ratio(near["ours"], near["litdata"]),
            }
        away = far(place, version, 2)
        result["far_2_workers"] = {
            "samples_per_second": round(median(away["ours"])), "of_files_by_fsspec": ratio(away["ours"], away["files"]),
        }  # fmt: skip
    near_2 = result["local_2_workers"]
    met = (
        near_2["of_torch"] >= 1.0
        and (near_2["of_litdata"] or 1.0) >= 1.0
        and result["far_2_workers"]["of_files_by_fsspec"] >= 1.2
    )
    text = json.dumps(result | {"met": met})
    print(text)
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data-speed.json").write_text(text + "\n")
    return 0 if met else 1


def _tokens(path: Path) -> Any:
    with ArrowRows(path) as rows:
        return np.stack([rows[index]["tokens"] for index in range(len(rows))])


if __name__ == "__main__":
    sys.exit(main())
