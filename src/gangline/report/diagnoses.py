"""Sentences on slow ranks and lossy links: evidence, cost, what to do. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from gangline.report.text import clean, percent
from gangline.spec.measurements import Diagnosis, Remedy

_REMEDIES = {
    "quarantine": "do not use {} until it is tested",
    "replace": "give the ranks of {} another server",
    "new_shares": "split each step as {} samples by replica (train.recovery.stragglers = \"rebalance\")",
    "new_plan": "plan again with another cut of the stages",
    "warm": "fetch the shards before training: gangline data warm {}",
    "read_ahead": "data.workers = {} in line.toml",
    "network": "look for a plan that sends less: gangline plan --why",
    "imbalance": "look at the times of the ranks: gangline report",
    "bubble": "more micro-batches in a step, or another train.mesh.pp_schedule",
    "compute": "faster only with more or faster devices, or less work",
}  # fmt: skip

_OF_BOUNDS = frozenset({"warm", "read_ahead", "network", "imbalance", "bubble", "compute"})


def diagnosis_text(each: Diagnosis) -> str:
    """`slow rank: rank 3: evidence; costs 8.8 % of a step; quarantine: do not use a3 until it is tested`."""
    cost = "" if each.cost_percent is None else f"; costs {each.cost_percent:.1f} % of a step"
    names = clean(", ".join(each.names), 120)
    if each.kind == "bound":
        return f"bound by {names}: {clean(each.evidence, 400)}; next: {remedy_text(each.action)}"
    return f"{kind_text(each)}: {names}: {clean(each.evidence, 400)}{cost}; {remedy_text(each.action)}"


class DiagnosisRow(NamedTuple):
    """The columns of a table."""

    kind: str
    names: str
    evidence: str
    cost: str
    action: str


def diagnosis_rows(diagnoses: Sequence[Diagnosis]) -> list[DiagnosisRow]:
    """Rows in the order of the record."""
    return [
        DiagnosisRow(
            kind_text(diagnosis), ", ".join(diagnosis.names), diagnosis.evidence,
            "not known" if diagnosis.cost_percent is None else percent(diagnosis.cost_percent / 100),
            remedy_text(diagnosis.action),
        )
        for diagnosis in diagnoses
    ]  # fmt: skip


def kind_text(each: Diagnosis) -> str:
    """`slow rank`."""
    return each.kind.replace("_", " ")


def remedy_text(remedy: Remedy) -> str:
    """`replace: give the ranks of a3 another server`."""
    shares = ", ".join(map(str, remedy.shares[:8])) + (", ..." if len(remedy.shares) > 8 else "")
    action = _REMEDIES[remedy.kind].format(shares or clean(", ".join(remedy.names), 120))
    return action if remedy.kind in _OF_BOUNDS else f"{remedy.kind.replace('_', ' ')}: {action}{_savings(remedy)}"


def _savings(remedy: Remedy) -> str:
    if remedy.saves_percent is None or remedy.most_percent is None:
        return ""
    return f": saves {remedy.saves_percent:.1f} % of a step, no split more than {remedy.most_percent:.1f} %"
