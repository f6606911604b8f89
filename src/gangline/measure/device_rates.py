"""Rates of the devices of this machine, measured by as many processes as a gang has here, all at once.

    python -m gangline.measure.device_rates < REQUEST.json

takes {"device": "cpu", "precision": "fp32", "ranks": 2, "cores": 2, "matrices": [[rows, inner, columns], ...]} and
prints one JSON object, a `spec.devices.Rates`. One rank measures without messages. Processes exchange only tensors and
text. On failure it exits with a code of the error tree and prints the reason to stderr.
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
from gangline.train.runtime.torch_collectives import FileStore

SECONDS = 60.0
"""Time limit of a measurement; it usually takes a few."""


def main() -> int:
    """Measure what the JSON on stdin requests and write rates as JSON to stdout; returns the exit code."""
    request = BenchRequest(**json.load(sys.stdin))
    try:
        rates = measure(request)
    except TrainingError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(rates.to_json().decode() + "\n")
    return 0


def measure(request: BenchRequest) -> Rates:
    """Rates of this machine's devices.

    Raises:
        TrainingError: A process died, or all of them took over a minute.
    """
    context: Any = multiprocessing.get_context("spawn" if request.device == "cuda" else "fork")  # CUDA outlives no fork
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="gangline-rates-") as folder:
        peers = [
            context.Process(target=_run_rank, args=(rank, request, folder, sender), daemon=True)
            for rank in range(request.ranks)
        ]
        for peer in peers:
            peer.start()
        sender.close()
        try:
            if not receiver.poll(SECONDS):
                raise TrainingError(f"measuring rates: wanted them within {SECONDS:.0f} s, found none")
            return Rates.from_json(receiver.recv_bytes())
        except EOFError as error:
            raise TrainingError("measuring rates: a process died; its error is printed above") from error
        finally:
            for peer in peers:
                peer.kill()
                peer.join()


def _run_rank(rank: int, request: BenchRequest, folder: str, sender: Connection) -> None:
    device = torch.device("cuda", rank) if request.device == "cuda" else torch.device("cpu")
    backend = "nccl" if request.device == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if request.ranks > 1:
        store = FileStore(f"{folder}/store", request.ranks)
        dist.init_process_group(backend, store=store, rank=rank, world_size=request.ranks)
    rates = DeviceBench(request, device).rates(backend)
    if rank == 0:
        sender.send_bytes(rates.to_json())
    os._exit(0)  # as ranks of a gang do: torch's threads may abort an interpreter that shuts down


if __name__ == "__main__":
    sys.exit(main())
