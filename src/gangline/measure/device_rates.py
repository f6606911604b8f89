"""What the devices of this machine do, measured in seconds by as many processes as a gang has here, all at once.

    python -m gangline.measure.device_rates < QUESTION.json

takes {"device": "cpu", "precision": "fp32", "ranks": 2, "cores": 2, "matrices": [[rows, inner, columns], ...]} and
prints one JSON object, a `spec.rates.Rates`. One rank measures without messages. Only tensors and text pass between the
processes. Ends with a code of the error tree and its reason on stderr.
"""

import json
import multiprocessing
import os
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from gangline.errors import TrainingError
from gangline.measure.device_bench import BenchRequest, DeviceBench
from gangline.spec.devices import Rates
from gangline.train.runtime.torch_compat import FileStore

SECONDS = 60.0
"""For everything; it takes a few."""


def main() -> int:
    asked = BenchRequest(**json.load(sys.stdin))
    try:
        rates = measure(asked)
    except TrainingError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(rates.to_json().decode() + "\n")
    return 0


def measure(asked: BenchRequest) -> Rates:
    """Rates of this machine's devices.

    Raises:
        TrainingError: A process died, or all of them took over a minute.
    """
    context: Any = multiprocessing.get_context("spawn" if asked.device == "cuda" else "fork")  # CUDA outlives no fork
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="gangline-rates-") as folder:
        peers = [
            context.Process(target=_be_rank, args=(rank, asked, folder, there), daemon=True)
            for rank in range(asked.ranks)
        ]
        for peer in peers:
            peer.start()
        there.close()
        try:
            if not here.poll(SECONDS):
                raise TrainingError(f"measuring rates: wanted them within {SECONDS:.0f} s, found none")
            return Rates.from_json(here.recv_bytes())
        except EOFError as error:
            raise TrainingError("measuring rates: a process died; its reason stands above") from error
        finally:
            for peer in peers:
                peer.kill()
                peer.join()


def _be_rank(rank: int, asked: BenchRequest, folder: str, there: Connection) -> None:
    device = torch.device("cuda", rank) if asked.device == "cuda" else torch.device("cpu")
    backend = "nccl" if asked.device == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if asked.ranks > 1:
        store = FileStore(f"{folder}/store", asked.ranks)
        dist.init_process_group(backend, store=store, rank=rank, world_size=asked.ranks)
    rates = DeviceBench(asked, device).rates(backend)
    if rank == 0:
        there.send_bytes(rates.to_json())
    os._exit(0)  # as ranks of a gang end: torch's threads may abort an interpreter that winds down


if __name__ == "__main__":
    sys.exit(main())
