"""Memory of a process that computes nothing: what counts, and what torch makes besides."""

from tests.checkpoint.forked import run_gang


def peaks_of_a_sum(rank, group, counted):
    """Bytes at most of a sum of two sharded tensors, to those of one shard; with shapes found out as ever, or apart."""
    import contextlib

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    from gangline.measure.live_memory import LiveMemory

    mesh = init_device_mesh("cpu", (2,))
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        held = LiveMemory(fake, gloo=False)
        with held, contextlib.nullcontext() if counted else held.shapes():
            one, other = (DTensor.from_local(torch.ones(1 << 10), mesh, [Shard(0)], run_check=False) for _ in range(2))
            total = one + other
            del total
    return held.device.peak / (4 << 10)


def test_what_finds_out_the_shapes_of_sharded_results_is_not_memory():
    assert run_gang(2, peaks_of_a_sum, False) == [3.0, 3.0]
    assert min(run_gang(2, peaks_of_a_sum, True)) > 3.0
