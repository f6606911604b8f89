"""Writes `optimizer-plans.md`, balance and times of plans: `python -m tools.optimizer_page docs/reference`."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from gangline.optim.plan.costs import MuonSpec, RuleSpec, ShampooSpec, SoapSpec
from gangline.units import Elements
from tools import optimizer_tables as tables
from tools.qwen3 import QWEN3

_RULES: tuple[RuleSpec, ...] = (
    MuonSpec(), MuonSpec(kernel="symmetric"), MuonSpec(kernel="gram"), ShampooSpec(), SoapSpec(),
)  # fmt: skip


def optimizer_page() -> str:
    """The page, as markdown."""
    parts = (_head(), _models(), _broken(), _balance(), _alpha(), _groups(), _steps(), _iterations())
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["--"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _slashes(values: Iterable[float], digits: int = 2) -> str:
    return "/".join(f"{each:.{digits}f}" for each in values)


def _head() -> str:
    return """# Plans of matrix optimizers

Computed by `gangline.optim.plan` for the public shapes of dense Qwen3 models. Ratios are arithmetic on shapes. Times
are modelled with assumed rates, none is measured: 600 TFLOP/s with half of it at a smaller side of 700, 120 us of
launch a matrix, 300 GB/s among the 8 GPUs of a server, 45 GB/s of network a GPU, 20 us a collective, gradients and
updates in fp32, parameters in bf16."""


def _models() -> str:
    rows = []
    for size, model in QWEN3.items():
        split = model.matrices("split")
        work = (f"{sum(tables.flops(split, rule)) / 1e12:,.1f}" for rule in _RULES)
        rows.append((
            size, f"{model.num_parameters / 1e9:.4f} B", f"{sum(m.elements.value for m in split) / 1e9:.3f} B",
            f"{len(split)} / {len(model.matrices('fused'))}", *work,
        ))  # fmt: skip
    head = (
        "size", "parameters", "in matrices", "matrices, split / fused", "Muon, standard", "symmetric", "Gram",
        "Shampoo", "SOAP",
    )  # fmt: skip
    return f"""## Work of a step

TFLOP of all matrices, split; roots and bases of Shampoo and SOAP are refreshed every 10 steps.

{_table(head, rows)}"""


def _broken() -> str:
    rows = []
    for size in tables.SIZES:
        fused = QWEN3[size].matrices("fused")
        cells = [
            "/".join(f"{tables.broken_share(fused, ranks, limit):.0%}" for ranks in tables.RANKS)
            for limit in (None, tables.BUCKET)
        ]
        rows.append((size, *cells))
    ranks = "/".join(map(str, tables.RANKS))
    return f"""## Matrices that equal slices break

Elements in matrices that a cut of the buffer into {ranks} equal slices goes through, fused: what a rank that updates
its slice alone gets wrong.

{_table(("size", "one buffer", "buckets of 400 M"), rows)}"""


def _balance() -> str:
    rows, proved = [], []
    for layout in tables.LAYOUTS:
        for size in tables.SIZES:
            rows.append([f"{layout} {size}", *(_slashes(each) for each in tables.balance(layout, size).values())])
            if found := tables.proved_optimal(layout, size):
                proved.append(f"{layout} {size} at {', '.join(map(str, found))}")
    ranks = "/".join(map(str, tables.RANKS))
    return f"""## Balance

Largest load over the mean on {ranks} ranks, standard Muon. `alpha_greedy` cuts buckets of 400 M elements at alpha 1
in double precision, as the released code does; `asc` and `contiguous` cut one buffer.

{_table(("layout, size", "bound", *tables.SCHEMES), rows)}

The owner map is proved optimal for {"; ".join(proved)} ranks."""


def _alpha() -> str:
    rows = []
    for name, limit in (("40 M", Elements(40e6)), ("400 M", Elements(400e6)), ("whole model", None)):
        ratios, padded = tables.alpha_table(limit)
        rows.append((name, *(f"{each:.2f}" for each in ratios), f"{padded:.1f}"))
    head = ("bucket", *(f"alpha {each}" for each in tables.ALPHAS), "padded elements at alpha 0")
    return f"""## Alpha

`alpha_greedy`, 8B fused on 32 ranks: largest compute load over the mean, and elements sent in equal shards over all.

{_table(head, rows)}"""


def _groups() -> str:
    rows = []
    for size, ranks in (("32B", 1), ("32B", 4), ("8B", 4)):
        count, largest, ideal, cells = tables.group_row(size, ranks)
        best = tables.best_of_ladder(size, ranks, 8)
        rows.append((
            f"{size}, {ranks} owner{'s' if ranks > 1 else ''}, {count} items", f"{largest:.0f} MB", f"{ideal:.1f} ms",
            *(f"{groups} / {over:.2f} / {ms:.1f}" for groups, over, ms in cells), f"{best:.1f}",
        ))  # fmt: skip
    head = ("heaviest owner", "largest", "ideal", *(f"C_max x{each}" for each in (1, 2, 4, 8)), "best up to x8, ms")
    return f"""## Micro-groups

8 hosts, split: groups / sum of the busiest hosts over the ideal / ms, grown at each ceiling; the last column is the
best candidate that a plan finds.

{_table(head, rows)}"""


def _steps() -> str:
    rows = []
    for size in tables.SIZES:
        row = tables.step_row(size)
        step, before, ours = row["layerwise step"], row["LB-ASC"], row["ours"]
        rows.append((
            size, *(f"{each:.2f}" for each in row.values()), f"{step / before:.1f}", f"{step / ours:.1f}",
            f"{before / ours:.2f}",
        ))  # fmt: skip
    head = ("size", *tables.step_row("1.7B"), "step / LB-ASC", "step / ours", "LB-ASC / ours")
    return f"""## Steps

8 hosts, 32 owners, ms of an optimizer step. LB-ASC plans fused matrices, ours split ones.

{_table(head, rows)}"""


def _iterations() -> str:
    rows = [
        (f"{tokens:,}", f"{model:,.0f} ms", f"{before:.2f}", f"{ours:.2f}")
        for tokens, model, before, ours in tables.iteration_rows(tables.step_row("32B"))
    ]
    return f"""## Iterations

32B on 256 GPUs at 400 TFLOP/s: how much faster an iteration is than with the layerwise optimizer.

{_table(("tokens a step", "forward and backward", "LB-ASC", "ours"), rows)}"""


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "optimizer-plans.md"
    page.write_text(optimizer_page(), "utf-8")
    sys.stdout.write(f"{page}\n")
