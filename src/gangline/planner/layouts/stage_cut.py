"""Division of blocks into pipeline stages, and the cost of each stage. Pure."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from gangline.errors import ConfigError
from gangline.spec.profile import PipelinePieces, Trace


def cut_into_stages(costs: Sequence[float], stages: int, *, embed: float = 0.0, head: float = 0.0) -> list[range]:
    """Blocks of each stage, one or more each, so that the dearest stage is as cheap as can be.

    Args:
        costs: Of each block.
        stages: How many.
        embed: Cost of what the first stage does besides.
        head: Cost of what the last stage does besides.

    Raises:
        ConfigError: There are more stages than blocks.
    """
    if stages > len(costs):
        raise ConfigError(
            f"a pipeline of {stages} stages wants {stages} blocks or more, the model has {len(costs)}; "
            f"{len(costs)} stages work, or a deeper model"
        )
    sums = [0.0, *accumulate(costs)]

    def cost(stage: int, start: int, stop: int) -> float:
        return sums[stop] - sums[start] + embed * (stage == 0) + head * (stage == stages - 1)

    best: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {(0, 0): (0.0, ())}
    """Stages and blocks so far to the dearest stage, and where each one begins."""
    for stage in range(stages):
        for stop in range(stage + 1, len(costs) - (stages - 1 - stage) + 1):
            best[stage + 1, stop] = min(
                (max(best[stage, start][0], cost(stage, start, stop)), (*best[stage, start][1], start))
                for start in range(stage, stop)
                if (stage, start) in best
            )
    begins = best[stages, len(costs)][1]
    return [range(start, stop) for start, stop in zip(begins, [*begins[1:], len(costs)], strict=True)]


def stage_ranges(pieces: PipelinePieces, stages: int) -> list[range]:
    """Numbers of the blocks of each stage, balanced by parameters, as ranks cut.

    Raises:
        ConfigError: There are more stages than blocks.
    """
    return cut_into_stages(pieces.block_parameters, stages, embed=pieces.embed_parameters, head=pieces.head_parameters)


def stages_of_parameters(pieces: PipelinePieces, stages: int, names: Iterable[str]) -> list[int | None]:
    """Stage that holds each parameter; None: no piece has it.

    Raises:
        ConfigError: There are more stages than blocks.
    """
    held = dict.fromkeys(pieces.embed, 0) | dict.fromkeys(pieces.head, stages - 1)
    for stage, blocks in enumerate(stage_ranges(pieces, stages)):
        held |= {pieces.blocks[block]: stage for block in blocks}

    def stage_of(name: str) -> int | None:
        parts = name.split(".")
        found = (held.get(".".join(parts[:length])) for length in range(len(parts), 0, -1))
        return next((stage for stage in found if stage is not None), None)

    return [stage_of(name) for name in names]


def stage_weights(trace: Trace | None, stages: int) -> tuple[float, ...]:
    """Work of each stage, cut by parameters as the runtime does; empty: of a model that was not traced.

    Half of the parameters around the blocks are taken to come before them; all of the work around them comes after.
    """
    blocks = [unit for unit in trace.units if unit.name] if trace else []
    if sum(unit.count for unit in blocks) < stages:
        return ()
    outside = [unit for unit in trace.units if not unit.name] if trace else []
    return _weights(
        tuple((unit.count, unit.parameters, unit.flops) for unit in blocks),
        sum(unit.parameters for unit in outside) / 2, sum(unit.flops for unit in outside), stages,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _weights(rows: tuple[tuple[int, int, float], ...], end: float, head_flops: float, stages: int) -> tuple[float, ...]:
    blocks = [(parameters, flops) for count, parameters, flops in rows for _ in range(count)]
    ranges = cut_into_stages([parameters for parameters, _ in blocks], stages, embed=end, head=end)
    work = [sum(blocks[number][1] for number in each) for each in ranges]
    work[-1] += head_flops
    return tuple(work) if all(work) else ()
