"""Writes `metrics.md`, the table of all series: `python -m tools.metrics_page docs/reference`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from gangline.metrics.catalogue import CATALOGUE, PREFIX, Series, Source
from gangline.metrics.labels import COUNTED, CUT, MAX_RANKS, MAX_SERIES, MAX_SERIES_PER_RUN, MAX_TEXT, values_of

_HEADINGS: dict[Source, str] = {
    "driver": "From the driver of a run",
    "rank 0": "From rank 0",
    "each rank": "From each rank",
    "serve": "From the service",
    "infer": "From a server of a model",
    "all": "From everything that exports",
}
_SAYS: dict[Source, str] = {
    "driver": "Served while the run is driven, where `metrics.driver_port` is set; the last values of ended runs by the"
    " service.",
    "rank 0": "Served while the gang trains.",
    "each rank": f"Up to {MAX_RANKS} ranks; above, `statistic` says minimum, median and maximum of them.",
    "serve": "Served at `/metrics` of `gangline serve`.",
    "infer": "Served at `/metrics` of `gangline infer`, in addition to the series of KServe's server.",
    "all": "What may not be exported is dropped and counted, it never stops a training.",
}


def metrics_page() -> str:
    """The page, as markdown."""
    parts = [_head()]
    for source, heading in _HEADINGS.items():
        rows = [each for each in CATALOGUE.values() if each.source == source]
        parts.append(f"## {heading}\n\n{_SAYS[source]}\n\n{_table(rows)}")
    return "\n\n".join([*parts, _labels()]) + "\n"


def _head() -> str:
    return f"""# Metrics

Written from `gangline.metrics.catalogue`, where each series is declared once; `gangline metrics check` prints the same
list. Counters end in `_total`; a histogram has `_bucket`, `_sum` and `_count`. Seconds, bytes and ratios, never
multiples of them. A run, and a project, has at most {MAX_SERIES_PER_RUN:,} series, one process {MAX_SERIES:,}."""


def _table(rows: Iterable[Series]) -> str:
    lines = ["| series | kind | labels | |", "|--|--|--|--|"]
    lines += [
        f"| `{each.name}` | {each.kind} | {' '.join(f'`{label}`' for label in each.labels)} | {each.help} |"
        for each in rows
    ]
    return "\n".join(lines)


def _labels() -> str:
    lines = ["## Labels", "", "| label | of | values |", "|--|--|--|"]
    seen: dict[tuple[str, str], list[str]] = {}
    for series in CATALOGUE.values():
        for label in series.labels:
            seen.setdefault((label, _values(series, label)), []).append(series.name.removeprefix(PREFIX))
    several = {label for label, _ in seen if len([1 for other, _ in seen if other == label]) > 1}
    for (label, values), names in sorted(seen.items()):
        owners = ", ".join(f"`{name}`" for name in names) if label in several else "all that have it"
        lines.append(f"| `{label}` | {owners} | {values} |")
    return "\n".join(lines)


def _values(series: Series, label: str) -> str:
    closed = values_of(series.name.removeprefix(PREFIX), label)
    if closed is not None:
        return " ".join(f"`{each}`" for each in closed)
    if label in CUT:
        return f"text on one line, at most {MAX_TEXT} characters; on `gangline_run_info` alone"
    return {
        "run": "id of the run",
        "project": "name of the project",
        "rank": f"0 to {MAX_RANKS - 1}",
        "metric": f"as the task names it, at most {COUNTED['metric']} a run",
        "model": "name of the model",
        "currency": "three letters",
        "forge": "as in `[forge.NAME]`; empty for any other",
        "tracker": "as in `[track.NAME]`",
    }[label]


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "metrics.md"
    page.write_text(metrics_page(), "utf-8")
    sys.stdout.write(f"{page}\n")
