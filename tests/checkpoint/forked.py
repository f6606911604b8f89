"""Gangs of any size for one job: gloo ranks forked from a server that has torch already, in a fraction of a second."""

import traceback
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.forks.server import fork_server
from tests.leash import end_with_tests

PATIENCE_SECONDS = 120.0


def run_gang(size: int, job, *args) -> list:
    """What `job(rank, group, *args)` gives on each of `size` ranks; `job` is a function of a module."""
    context = fork_server()
    with TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(theirs, rank, size, str(Path(folder) / "meet"), job, args))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            answers = [_answer(rank, pipe) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                process.kill()
                process.join()
    return answers


def _answer(rank: int, pipe):
    assert pipe.poll(PATIENCE_SECONDS), f"rank {rank} did not answer in {PATIENCE_SECONDS} s"
    try:
        value, trouble = pipe.recv()
    except EOFError:
        raise AssertionError(f"rank {rank} ended without an answer") from None
    assert trouble is None, trouble
    return value


def _rank(pipe, rank: int, size: int, meet: str, job, args) -> None:
    end_with_tests()
    import torch
    import torch.distributed as dist

    from gangline.errors import GanglineError

    warnings.simplefilter("error")
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=size)
        group = dist.new_group(backend="gloo") if size > 1 else None
        pipe.send((job(rank, group, *args), None))
    except (Exception, GanglineError):
        pipe.send((None, traceback.format_exc()))
