"""What a matrix rule asks of a model as a whole, for forecasts of memory and time. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gangline.optim.plan.buckets import OUTSIDE, blocks_of
from gangline.optim.plan.costs import (
    CPU,
    DTYPE_BYTES,
    DeviceCurve,
    MeasuredCost,
    MuonSpec,
    RuleSpec,
    ShampooSpec,
    SoapSpec,
    cost,
)
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.spec.config.matrix_options import (
    MatrixOptions,
    MuonOptions,
    ShampooOptions,
    SoapOptions,
)
from gangline.spec.profile import MatrixWork


def rule_spec(options: MatrixOptions | Mapping[str, Any]) -> RuleSpec | None:
    """What is known of a rule with these options; None: a class of its own, whose costs only ranks know."""
    match options:
        case MuonOptions():
            return MuonSpec(kernel=options.kernel, steps=options.ns_steps, dtype=options.dtype)
        case ShampooOptions():
            return ShampooSpec(refresh_every=options.refresh_every)
        case SoapOptions():
            return SoapSpec(refresh_every=options.refresh_every, largest_side=options.largest_side)
    return None


def device_curve(device: str, table: Mapping[str, Any] | None) -> DeviceCurve:
    """Seconds of updates on a `cpu` or on GPUs, with those of a measured table of a line (`spec.config.cost_table`)."""
    curve = CPU if device == "cpu" else DeviceCurve()
    if table is None:
        return curve
    rows = tuple(
        MeasuredCost(
            rule=row["rule"], shape=(row["rows"], row["columns"]), batch=row["batch"], dtype=row["dtype"],
            seconds=row["seconds"], refresh_seconds=row["refresh_seconds"],
        )
        for row in table["rows"]
    )  # fmt: skip
    return replace(curve, table=rows, source=f"{table['device']}, torch {table['torch']}")


def matrix_work(
    matrices: Sequence[LogicalMatrix], rule: RuleSpec, options: PlanOptions, *, measured: DeviceCurve | None = None
) -> MatrixWork:  # fmt: skip
    """Work over all `matrices`, of which there is one or more, under plans with these `options`.

    The seconds are those of `measured`, which has a table with a shape of these matrices, or None.
    """
    counts = Counter(matrix.shape for matrix in matrices)
    flops = {shape: cost(rule, shape).value for shape in counts}
    kept = {shape: _state_bytes(rule, shape) for shape in flops}
    seconds = {}
    together = {shape: options.together(shape, count) for shape, count in counts.items()}
    if measured is not None and any(measured.measured(rule, shape, batch) for shape, batch in together.items()):
        seconds = {shape: measured.seconds(rule, shape, batch).value / batch for shape, batch in together.items()}
    return MatrixWork(
        rule=rule.name,
        parameters=int(sum(matrix.elements.value for matrix in matrices)),
        flops=sum(flops[matrix.shape] for matrix in matrices),
        largest_flops=max(flops.values()),
        sharded_bytes=sum(kept[matrix.shape][0] for matrix in matrices),
        owner_bytes=sum(kept[matrix.shape][1] for matrix in matrices),
        largest_owner_bytes=max(owned for _, owned in kept.values()),
        batch=options.batch,
        largest_elements=max(int(matrix.elements.value) for matrix in matrices),
        c_max_bytes=options.c_max_bytes,
        element_bytes=options.element_bytes,
        blocks=len({*blocks_of(matrices)} - {OUTSIDE}),
        bucket_elements=options.most_elements,
        overlaps=options.overlap == "forward",
        repeats=options.copies == "repeat",
        seconds=sum(seconds[matrix.shape] for matrix in matrices) if seconds else None,
        largest_seconds=max(seconds.values(), default=None),
    )


def _state_bytes(rule: RuleSpec, shape: tuple[int, int]) -> tuple[int, int]:
    """State with the parameter, and at the owner."""
    found = {"sharded": 0, "owner": 0}
    for (rows, columns), dtype, where in rule.state(shape).values():
        found[where] += rows * columns * DTYPE_BYTES[dtype]
    return found["sharded"], found["owner"]
