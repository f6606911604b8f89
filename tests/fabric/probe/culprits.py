"""Gangs and networks with a known culprit, as measurements show them; seeded."""

import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import permutations

from gangline.fabric.probe.links import LossTest
from gangline.fabric.probe.packets import ProbeResult
from gangline.fabric.probe.telemetry import diagnose_pairs, diagnose_probes, diagnose_slow_ranks, diagnose_stages
from gangline.fabric.reliability.step_times import WORK, PeerGroup, WindowTimes
from gangline.fabric.reliability.stragglers import StragglerDetector
from gangline.spec.measurements import Diagnosis, RankRow
from gangline.spec.mesh import Mesh

RANKS, STAGES, STEPS, CUT = 16, 2, 10, 2
SHARES = dict(zip(WORK, (0.05, 0.3, 0.55, 0.08, 0.02), strict=True))
GROUPS = {f"s{number}": f"g{number // 4}" for number in range(16)}
Own = Callable[[random.Random, int], float]
"""Seconds of one step of a rank's own work."""


def usual(draw: random.Random, rank: int) -> float:
    return 2.0 * (1 + draw.gauss(0, 0.03))


def slow_rank(draw: random.Random, rank: int) -> float:
    return usual(draw, rank) * (1.1 if rank == 5 else 1.0)


def garbage_collection(draw: random.Random, rank: int) -> float:
    """Each rank stops for half a second, once in twenty steps."""
    return usual(draw, rank) + (0.5 if draw.random() < 0.05 else 0.0)


def uneven_stages(draw: random.Random, rank: int) -> float:
    return usual(draw, rank) * (1.4 if rank < RANKS // STAGES else 1.0)


def window(draw: random.Random, own: Own) -> list[WindowTimes]:
    """Ten steps of all ranks: means without the two shortest and longest, as the training reports them."""
    steps = [[own(draw, rank) for rank in range(RANKS)] for _ in range(STEPS)]
    found = []
    for rank in range(RANKS):
        seconds = trimmed([step[rank] for step in steps])
        wait = trimmed([max(step) - step[rank] for step in steps])
        found.append(WindowTimes(work={name: part * seconds for name, part in SHARES.items()}, wait=wait, samples=8))
    return found


def trimmed(values: list[float]) -> float:
    kept = sorted(values)[CUT:-CUT]
    return sum(kept) / len(kept)


def diagnose_gang(own: Own, seed: int, *, windows: int = 40) -> Iterator[Diagnosis]:
    """What a training of two stages with replicas says at its end."""
    draw, mesh = random.Random(seed), Mesh(pp=STAGES, dp_replicate=RANKS // STAGES)
    detector = StragglerDetector(lambda rank: PeerGroup(mesh.coordinates(rank)["pp"], mesh.data_rank(rank)))
    events, rows = [], []
    for step in range(windows):
        rows = window(draw, own)
        for name, found in zip(("straggler", "straggler_over"), detector.add_window(rows), strict=True):
            events += [{"event": name, "step": step, "node": 0, "slow": each.rank, **asdict(each)} for each in found]
    yield from diagnose_slow_ranks(events, mesh=mesh, global_batch=64, nodes={})
    phases = [RankRow(rank=at, node="", phases={**row.work, "wait": row.wait}) for at, row in enumerate(rows)]
    yield from diagnose_stages(phases, mesh=mesh)


def diagnose_table(slower: Callable[[str, str], float], seed: int) -> Iterator[Diagnosis]:
    """What a bandwidth test of all pairs says."""
    draw = random.Random(seed)
    seconds = {
        (one, other): (2 if GROUPS[one] != GROUPS[other] else 1) * slower(one, other) * draw.lognormvariate(0, 0.05)
        for one, other in permutations(GROUPS, 2)
    }
    yield from diagnose_pairs(seconds, groups=GROUPS)


def diagnose_losses(loss: Callable[[str, str], float], seed: int, *, probes: int = 3000) -> Iterator[Diagnosis]:
    """What probes of all pairs say."""
    draw = random.Random(seed)
    results = {pair: probed(loss(*pair), draw, probes) for pair in permutations(GROUPS, 2)}
    yield from diagnose_probes(results, groups=GROUPS, unreachable={})


def probed(loss: float, draw: random.Random, probes: int) -> ProbeResult:
    test = LossTest()
    while test.sent < probes and not test.is_lossy:
        arrived = min(int(draw.expovariate(loss)) if 0 < loss < 1 else probes if loss == 0 else 0, probes - test.sent)
        test.add_arrived(arrived) if arrived else None
        test.add_lost() if test.sent < probes else None
    return ProbeResult(
        target="", sent=test.sent, lost=test.lost, lost_there=test.lost, lost_back=0, is_lossy=test.is_lossy,
        clean_in_a_row=test.arrived_in_a_row, decided_seconds=None, median_seconds=None, p99_seconds=None,
    )  # fmt: skip


CULPRITS: dict[str, Callable[[int], Iterator[Diagnosis]]] = {
    "none": lambda seed: (each for part in (
        diagnose_gang(usual, seed), diagnose_table(lambda *_: 1, seed), diagnose_losses(lambda *_: 0.0, seed)
    ) for each in part),
    "garbage collection": lambda seed: diagnose_gang(garbage_collection, seed),
    "slow_rank": lambda seed: diagnose_gang(slow_rank, seed),
    "stage_imbalance": lambda seed: diagnose_gang(uneven_stages, seed),
    "slow_sender": lambda seed: diagnose_table(lambda one, _: 1.5 if one == "s3" else 1, seed),
    "slow_receiver": lambda seed: diagnose_table(lambda _, other: 1.5 if other == "s9" else 1, seed),
    "slow_path": lambda seed: diagnose_table(lambda *pair: 1.8 if pair == ("s1", "s9") else 1, seed),
    "slow_leaf": lambda seed: diagnose_table(lambda *pair: 1.6 if "g1" in map(GROUPS.get, pair) else 1, seed),
    "lossy_link": lambda seed: diagnose_losses(lambda *pair: 0.02 if "s6" in pair else 0.0, seed),
    "sick_host": lambda seed: diagnose_losses(lambda *pair: 1.0 if "s6" in pair else 0.0, seed),
}  # fmt: skip
"""By culprit, the diagnoses of one seed."""
