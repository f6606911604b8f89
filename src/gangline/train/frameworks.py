"""What TensorFlow and JAX want to know of a gang, in the variables that they read themselves. Standard library alone.

    TF_CONFIG                     workers of MultiWorkerMirroredStrategy, and which of them this one is
    JAX_COORDINATOR_ADDRESS       read by `jax.distributed.initialize`, which wants WORLD_SIZE and RANK as arguments

Their ports must be free in every generation, and all ranks must know them beforehand; both servers listen on every
address of their machine. Pods have ports of their own, there they are fixed. On one machine they follow from the port
of the rendezvous store, which is new each time, and lie below those that the system hands out: where one is taken by
chance, its rank dies and the next generation gets others.
"""

import json
import re
from collections.abc import Sequence

JAX_PORT, FIRST_TF_PORT = 29_599, 29_600
_LOWEST, _PORTS, _A_GANG = 10_000, 20_000, 80
"""Ports of this machine that gangs of at most 79 ranks get by eighties."""
_FIRST_POD = re.compile(r"-0(?=\.|$)")


def framework_environ(
    *, rank: int, nodes: Sequence[int], per_node: int, master_addr: str, master_port: int, on_loopback: bool
) -> dict[str, str]:
    """Variables of one rank.

    Args:
        rank: Of the gang.
        nodes: Those that take part, in rank order, each with `per_node` ranks.
        per_node: Ranks of a node.
        master_addr: Host of node 0; of pods its first label ends with their number.
        master_port: Of this generation's rendezvous store.
        on_loopback: All nodes are on this machine.
    """
    world_size = len(nodes) * per_node
    if on_loopback:
        first = _LOWEST + master_port * _A_GANG % _PORTS
        coordinator, *workers = (f"{master_addr}:{first + number}" for number in range(world_size + 1))
    else:
        hosts = [_FIRST_POD.sub(f"-{node}", master_addr, count=1) for node in nodes]
        workers = [f"{host}:{FIRST_TF_PORT + local}" for host in hosts for local in range(per_node)]
        coordinator = f"{master_addr}:{JAX_PORT}"
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    return {"TF_CONFIG": json.dumps(cluster), "JAX_COORDINATOR_ADDRESS": coordinator}
