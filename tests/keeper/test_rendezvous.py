"""The store that ranks meet at: a port of its own for every generation, and none that is taken."""

import socket

import pytest

MEETING = """
import os, signal, torch.distributed as dist
dist.init_process_group("gloo")
rank, generation = dist.get_rank(), int(os.environ["GANGLINE_GENERATION"])
print("met", generation, os.environ["MASTER_PORT"], flush=True)
dist.barrier()
if generation == 0 and rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier() if generation == 0 else None
os._exit(0)
"""


def test_port_in_use_is_said_so_and_is_not_a_place(keep):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        end = keep("pass", MASTER_PORT=str(port)).end()
    assert (end.exit_code, end.retry) == (20, "later"), end
    assert f"127.0.0.1:{port}" in end.reason
    assert "another MASTER_PORT" in end.reason


def test_every_generation_has_a_port_of_its_own(keep):
    dying = "import os; print('port', os.environ['MASTER_PORT'], flush=True); generation or os._exit(137)"
    gang = keep(f"import os; generation = int(os.environ['GANGLINE_GENERATION']); {dying}")
    end = gang.end()
    assert (end.exit_code, end.restarts) == (0, 1), end
    ports = [line.split()[1] for line in gang.log(1).splitlines() if line.startswith("port")]
    assert len(ports) == len(set(ports)) == 2, "who comes back must not meet what the dead left in the store"


def test_first_rank_of_a_program_opens_no_store_of_its_own(keep):
    """There is one at that address: a second one there would be in its way."""
    end = keep("import torch.distributed as dist; dist.init_process_group('gloo')", ranks=1, restarts=0).end()
    assert end.exit_code == 0, end


@pytest.mark.slow
def test_program_that_meets_by_environment_meets_again_after_the_death_of_rank_0(keep):
    gang = keep(MEETING)
    end = gang.end()
    assert (end.exit_code, end.restarts) == (0, 1), end
    words = [line.split()[1:] for line in gang.log(1).splitlines() if line.startswith("met")]
    assert [generation for generation, _ in words] == ["0", "1"]
    assert words[0][1] != words[1][1], "a fresh store at a port of its own"
