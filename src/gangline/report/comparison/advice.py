"""Advice on making two runs comparable: a band, the same data, or a metric that both have."""

import json
from collections.abc import Sequence
from shlex import quote
from typing import Any

from gangline.report.text import short
from gangline.spec.record import Record


def way_to_compare(base: Record, this: Record, *, needs_band: bool, missing: Sequence[str]) -> str:
    """The next step towards a comparison.

    Args:
        base: Is compared with.
        this: Is judged.
        needs_band: They have metrics in common, and nothing judges them.
        missing: Metrics that `base` was judged on and `this` lacks.
    """
    if base.run.project != this.run.project or not base.metrics or not this.metrics:
        return f"gangline show {(base if not base.metrics else this).run.id}"
    if base.inputs.data != this.inputs.data:
        return _same_data(base, this)
    if needs_band:
        return _band(base)
    if missing:
        return f"report {missing[0]}, too, in one commit: its run has both names"
    return f"gangline show {this.run.id}"


def _band(base: Record) -> str:
    """A program that was trained with several seeds shows whether it reads its seed."""
    if not base.inputs.values.get("project.command"):
        return f"set evaluate.seeds = 3, then: gangline run --commit {short(base.commit.sha)} --again"
    works = "evaluate.seeds = 3 where the program reads its seed, else tolerance_percent in [[gate.quality]]"
    return f"set {works}, commit, then: gangline run; gangline diff"


def _same_data(base: Record, this: Record) -> str:
    """The base on the data of `this`, as far as a command gives it them."""
    names = ("data.text", "data.shards")
    again = f"gangline run --commit {short(base.commit.sha)}"
    other = [name for name in names if _list(base, name) != _list(this, name)]
    if any(str(text).startswith("repo:") for each in (base, this) for text in _list(each, "data.text")):
        return "each commit has data of its own; a limit in [[gate.quality]] judges without a base"
    if other:
        keys = " ".join(f"--set {quote(f'{name}={json.dumps(_list(this, name))}')}" for name in other)
        return f"the base on the data of this: {again} {keys}; then gangline diff with that run"
    return f"the base on the data of today: {again} --again"


def _list(record: Record, key: str) -> list[Any]:
    values = record.inputs.values.get(key)
    return list(values) if isinstance(values, (list, tuple)) else []
