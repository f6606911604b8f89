"""Bytes that each of four nodes fetches in an epoch with `data.parts = 4`, counted between it and an S3 server (DL3b).

Bounds: at most 1.1 of a fourth on each node, and the samples of a step are the same at 1, 2, 3 and 4 nodes. MinIO of
`make tools` where it is, else the S3 gateway of the tests.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from packed import opened, pack
from tests.contracts.storage.servers import S3Server
from tests.tools.__main__ import tools_folder

from gangline.data.cache import ShardCache
from gangline.faults.proxy import FaultProxy
from gangline.faults.s3_gateway import S3Gateway
from gangline.spec.dataset import DatasetShard
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

SEED, ROWS, SHARD_BYTES, BATCH, PARTS = 28, 9_600, 246_000, 24, 4


@contextmanager
def s3_server(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Name of the server, its URL without endpoint, and its credentials; the endpoint is in the name's second word."""
    if (tools_folder() / "minio").is_file():
        folder.mkdir()
        server = S3Server("minio", folder).start()
        try:
            yield f"minio {server.endpoint}", f"s3://{server.bucket}/p", server.credentials
        finally:
            server.stop()
    else:
        with S3Gateway(FolderStore(folder)) as gateway:
            url = S3Gateway.url(gateway.port)
            yield f"gateway http://127.0.0.1:{gateway.port}", url.partition("?")[0], gateway.credentials


def fetch(store: ObjectStore, shard: DatasetShard) -> Iterator[bytes]:
    blob = store.get(shard.key)
    assert blob is not None
    yield blob.data


def main() -> int:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        dataset = pack(place / "shards", rows=ROWS, shard_bytes=SHARD_BYTES, seed=SEED)
        said, url, credentials = stack.enter_context(s3_server(place / "server"))
        kind, endpoint = said.split()
        plain = open_store(url, endpoint=endpoint, credentials=credentials)
        for shard in dataset.shards:
            plain.put(shard.key, (place / "shards" / shard.sha256).read_bytes())
        whole = sum(each.size_bytes for each in dataset.shards)
        steps_by_nodes, shares = {}, {}
        for nodes in (1, 2, 3, 4):
            steps, fetched = [set[int]() for _ in range(ROWS // BATCH - 1)], []
            for node in range(nodes):
                parts = urlsplit(endpoint)
                with FaultProxy(str(parts.hostname), parts.port or 80) as proxy:
                    store = open_store(url, endpoint=proxy.endpoint, credentials=credentials)
                    files = lambda store=store, to=place / f"{nodes}-{node}": ShardCache(  # noqa: E731
                        to, 1e12, lambda shard: fetch(store, shard)
                    )
                    sets = opened(dataset, files, global_batch=BATCH, window=2, parts=PARTS)
                    places = range(node * BATCH // nodes, (node + 1) * BATCH // nodes)
                    order = sets.order_of(sets.train, seed=SEED, places=places)
                    assert order is not None
                    for step, seen in enumerate(steps):
                        seen.update(order.samples([step * BATCH + each for each in places]))
                    fetched.append(proxy.passed["down"])
            steps_by_nodes[nodes], shares[nodes] = steps, [round(each * nodes / whole, 4) for each in fetched]
        same = all(steps == steps_by_nodes[1] for steps in steps_by_nodes.values())
    result = {
        "seed": SEED, "server": kind, "shards": len(dataset.shards), "bytes": whole, "parts": PARTS, "same_steps": same,
        "share_of_its_part_by_nodes": shares, "worst_of_a_fourth": max(shares[4]), "cores": os.cpu_count(),
    }  # fmt: skip
    met = same and max(shares[4]) <= 1.1
    text = json.dumps(result | {"met": met})
    print(text)
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data-parts.json").write_text(text + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
