"""Makes and lays out a code layer of 64 MiB, against hashing the same bytes once.

Bounds: 1 s to make it, 1 s to verify and unpack it. The ratios are what CI watches: they do not depend on the machine.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from statistics import median

from gangline.storage.objects.code_layer import MAX_BYTES, LayerFile, pack, unpack

ROUNDS = 5
FILES = 2_000


def timed(work: Callable[[int], object]) -> float:
    """Median seconds of a call, after one to warm up."""
    times = []
    for number in range(ROUNDS + 1):
        start = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - start)
    return median(times[1:])


def main() -> int:
    size = MAX_BYTES // FILES
    files = [LayerFile(f"pkg{n % 40}/module{n}.py", os.urandom(size)) for n in range(FILES)]
    data = pack(files)
    hashing = timed(lambda _: sha256(data).hexdigest())
    making = timed(lambda _: sha256(pack(files)).hexdigest())
    with tempfile.TemporaryDirectory() as name:

        def lay_out(number: int) -> None:
            assert len(sha256(data).hexdigest()) == 64
            unpack(data, Path(name) / str(number))

        unpacking = timed(lay_out)
    _write({
        "layer_bytes": len(data),
        "files": FILES,
        "make_seconds": round(making, 3),
        "verify_unpack_seconds": round(unpacking, 3),
        "make_to_hash_ratio": round(making / hashing, 2),
        "verify_unpack_to_hash_ratio": round(unpacking / hashing, 2),
    })  # fmt: skip
    return 0 if making <= 1.0 and unpacking <= 1.0 else 1


def _write(result: dict[str, float]) -> None:
    print(json.dumps(result, indent=1))
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "code_layer.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
