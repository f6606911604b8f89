"""Writes `gpus.md`, the table of built-in kinds of GPU: `python -m tools.gpus_page docs/reference`."""

import sys
from pathlib import Path

from gangline.planner.known_gpus import KnownGpu, assumptions, known_gpus

_COLUMNS = ("kind", "memory", "bf16", "fp16", "fp32", "of memory", "to its server", "NICs, assumed", "published by")
_UNITS = ("", "GB", "TFLOP/s", "TFLOP/s", "TFLOP/s", "TB/s", "GB/s each way", "Gb/s a GPU", "")


def gpus_page() -> str:
    """The page, as markdown."""
    rows = [_COLUMNS, ["--"] * len(_COLUMNS), _UNITS, *(_row(name, table) for name, table in known_gpus().items())]
    shares = "\n".join(f"| `{key}` | {_share(key, value)} |" for key, value in assumptions().items())
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    return f"""# Built-in kinds of GPU

Written from `known_gpus.toml` of `gangline.planner`. `gangline plan --gpus h100:64` takes these names; a kind
that `[gpu.NAME]` of [site.toml](site.md) describes, by the same name or by that of its driver, is planned for as the
site says. Figures are of one device: dense products without sparsity, sums of 16 bits in 32, fp32 without tensor cores;
a dash is what it cannot do.

{table}

No server delivers its peaks. For a built-in kind plans count with these shares of the published rates, and with these
latencies. They are assumed, and the plan says so:

| key of `[gpu.NAME]` | assumed |
|--|--|
{shares}

Servers have eight GPUs, each with its share of their NICs, unless a [fabric.toml](fabric.md) says otherwise; what that
states of links and latencies is no longer assumed. Memory of servers and prices are not known.
"""


def _share(key: str, value: float) -> str:
    return f"{value * 1e6:.0f} µs" if key.endswith("_seconds") else f"{value * 100:.0f} %"


def _row(name: str, table: KnownGpu) -> list[str]:
    kind = table.published
    peaks = [kind.flops_per_second.get(precision) for precision in ("bf16", "fp16", "fp32")]
    return [
        f"`{name}`",
        f"{table.memory_bytes / 1e9:.4g}",
        *("–" if peak is None else f"{peak / 1e12:.5g}" for peak in peaks),
        f"{(kind.memory_bytes_per_second or 0.0) / 1e12:.4g}",
        f"{kind.link_bytes_per_second / 1e9:.4g}, {kind.link}",
        f"{kind.nic_bytes_per_second * 8 / 1e9:.4g}",
        kind.source,
    ]


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "gpus.md"
    page.write_text(gpus_page(), "utf-8")
    sys.stdout.write(f"{page}\n")
