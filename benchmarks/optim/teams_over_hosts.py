"""What teams would gain where matrices are cut over hosts: `python benchmarks/optim/teams_over_hosts.py`, modelled.

Each owner's updates are dealt to its hosts, the largest of them to teams: their members start together and are busy as
long as `team_seconds` says. Every number of shared updates and every power of two of members is tried, for each owner
by itself, and the fastest counts. What is exposed of gathers and scatters is that of the plan without teams.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.qwen3 import QWEN3, Layout

from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import DeviceCurve, MuonSpec, Shape
from gangline.optim.plan.groups import HostExchangeRate
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.simulate import simulate
from gangline.units import Flops, Seconds

DEVICE = DeviceCurve()
MOST_COUNTS = 40
"""Most counts of shared updates that are tried one by one; above, all matrices of a shape or none."""


class Mesh(NamedTuple):
    """Hosts of each owner, owners, and the rate between hosts."""

    hosts: int
    owners: int
    rate: HostExchangeRate


NVLINK, NIC = HostExchangeRate(), HostExchangeRate(bytes_per_second=45e9)
MESHES = {"tp 8 x dp 32": Mesh(8, 32, NVLINK), "fsdp 8": Mesh(8, 1, NVLINK), "fsdp 64": Mesh(64, 1, NIC),
          "fsdp 256": Mesh(256, 1, NIC), "hsdp 8 x 32": Mesh(32, 8, NIC)}  # fmt: skip


def team_seconds(
    rule: MuonSpec, shape: Shape, size: int, device: DeviceCurve, *, bytes_per_second: float, latency_seconds: float
) -> Seconds:
    """Time of one update by `size` ranks; 1: by its owner.

    Products along the longer side are shared; those of m x m are not. bf16 travels: one ring all-reduce of m x m each
    iteration, two in all for `gram`.
    """
    if size == 1:
        return device.seconds(rule, shape)
    m, n = sorted(shape)
    both = rule.step_cost((m, n)).value
    square = 20 * m**3 if rule.kernel == "gram" else rule.steps * (1 if rule.kernel == "symmetric" else 2) * m**3
    compute = device.compute_seconds(Flops((both - square) / size + square), m).value + device.launch_seconds
    ring = 2 * (size - 1) / size * 2 * m * m / bytes_per_second + latency_seconds
    return Seconds(compute + (2 if rule.kernel == "gram" else rule.steps) * ring)


def makespan(shapes: Sequence[Shape], mesh: Mesh, rule: MuonSpec, *, shared: int, members: int) -> float:
    """Seconds of the busiest host; the first `shared` updates, which are the largest, are those of teams."""
    loads = [0.0] * mesh.hosts
    for at, shape in enumerate(shapes):
        size = members if at < shared else 1
        seconds = team_seconds(
            rule, shape, size, DEVICE, bytes_per_second=mesh.rate.bytes_per_second,
            latency_seconds=mesh.rate.latency_seconds,
        ).value  # fmt: skip
        team = sorted(range(mesh.hosts), key=loads.__getitem__)[:size]
        end = max(loads[host] for host in team) + seconds
        for host in team:
            loads[host] = end
    return max(loads)


def fastest(shapes: Sequence[Shape], mesh: Mesh, rule: MuonSpec) -> float:
    """Least time of all choices of teams; no teams is one of them."""
    sizes = [2**power for power in range(1, 9) if 2**power <= mesh.hosts]
    changes = [at for at in range(1, len(shapes)) if at < MOST_COUNTS or shapes[at] != shapes[at - 1]]
    choices = [(0, 1), *((shared, members) for members in sizes for shared in (*changes, len(shapes)))]
    return min(makespan(shapes, mesh, rule, shared=shared, members=members) for shared, members in choices)


def step_milliseconds(size: str, layout: Layout, mesh: Mesh, rule: MuonSpec) -> tuple[float, float]:
    """Time of an optimizer step as it is, and with teams where they are faster."""
    options = PlanOptions(exchange=mesh.rate, device=DEVICE)
    plan = build_plan(QWEN3[size].matrices(layout), rule, ranks=mesh.owners, hosts=mesh.hosts, options=options)
    alone = simulate(plan)
    held: dict[int, list[Shape]] = {}
    for each in sorted(plan.matrices, key=lambda each: -each.seconds):
        held.setdefault(each.owner, []).append(each.matrix.shape)
    kinds = {tuple(shapes) for shapes in held.values()}
    shared = max(fastest(shapes, mesh, rule) for shapes in kinds)
    exposed = alone.step_seconds - alone.compute_seconds
    return 1e3 * alone.step_seconds, 1e3 * min(alone.step_seconds, shared + exposed)


def main() -> None:
    """Print the table."""
    print("| ms, alone / teams | " + " | ".join(f"{size} {layout}" for size in ("1.7B", "8B", "32B") for layout in
                                                ("split", "fused")) + " |")  # fmt: skip
    for name, mesh in MESHES.items():
        for kernel in ("standard", "gram"):
            cells = [
                step_milliseconds(size, layout, mesh, MuonSpec(kernel=kernel))
                for size in ("1.7B", "8B", "32B") for layout in ("split", "fused")
            ]  # fmt: skip
            print(f"| {name}, {kernel} | " + " | ".join(f"{a:.2f} / {b:.2f}" for a, b in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
