"""A function on a few gloo ranks at once, without plan or keeper: what each returns, by rank."""

import io
import os
import traceback
from collections.abc import Callable
from typing import Any

from tests.forks.server import fork_server
from tests.leash import end_with_tests

DEADLINE_SECONDS = 120.0


def on_ranks(size: int, function: Callable, *args: Any) -> list:
    """`function(*args)` of a test module on `size` forked ranks; what it returns is sent back."""
    from torch.distributed import TCPStore

    context = fork_server()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    processes = [
        context.Process(target=_be_rank, args=(rank, size, store.port, sends, function, args))
        for rank, (_, sends) in enumerate(pipes)
    ]
    for process, (_, sends) in zip(processes, pipes, strict=True):
        process.start()
        sends.close()
    found = [_receive(receives) for receives, _ in pipes]
    for process in processes:
        process.join()
    return found


def _receive(pipe: Any) -> Any:
    import torch

    assert pipe.poll(DEADLINE_SECONDS), "a rank said nothing"
    good, answer = torch.load(io.BytesIO(pipe.recv_bytes()), weights_only=True)
    assert good, answer
    return answer


def _be_rank(rank: int, size: int, port: int, pipe: Any, function: Callable, args: tuple) -> None:
    end_with_tests()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    try:
        answer = True, function(*args)
    except BaseException:  # told by the test
        answer = False, traceback.format_exc()
    out = io.BytesIO()
    torch.save(answer, out)
    pipe.send_bytes(out.getvalue())
    os._exit(0)
