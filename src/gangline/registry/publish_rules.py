"""Rules for which runs become versions. Pure: they read record and line only."""

from dataclasses import dataclass

from gangline.errors import GateError
from gangline.sanitize import clean
from gangline.spec.config.line import Line
from gangline.spec.globs import any_matches
from gangline.spec.record import UNPROTECTED, Record
from gangline.spec.run_flags import is_experiment, stopped_early, was_drilled

WEIGHTS = "weights"
"""Name of the gate on whether the judged metrics are of the weights that are published."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NotPublished:
    """The line does not publish this run; no failure."""

    reason: str


def check_rules(record: Record, line: Line) -> NotPublished | None:
    """None where the run may become a version; a reason where it never does.

    Raises:
        GateError: A gate or the proof says no, a required base is missing, or processes may have failed unseen.
    """
    reason = skip_reason(record, line)
    if reason is None:
        check_gates(record, require_base=line.gate.require_base)
    return NotPublished(reason=reason) if reason else None


def check_gates(record: Record, *, require_base: bool = False) -> str:
    """One sentence on gates and proof; raises GateError if one of them refuses."""
    for gate in record.gates:
        must_know = gate.name == "processes" or (require_base and gate.name not in ("reproducible", WEIGHTS))
        if gate.verdict == "no" or (must_know and gate.verdict == "unknown"):
            raise GateError(f"gate {gate.name} says {gate.verdict}: {gate.reason}")
    proof = record.proof
    if proof and (proof.tensors_equal != proof.tensors or proof.same_loss == "no"):
        equal = f"{proof.tensors_equal} of {proof.tensors} tensors equal"
        raise GateError(f"the proof under {proof.plan} differs: {equal}, same loss: {proof.same_loss}")
    unknown = sum(gate.verdict == "unknown" for gate in record.gates)
    return f"{len(record.gates)} gates, none says no" + (f", {unknown} unknown" if unknown else "")


def unpublishable_reason(record: Record) -> str | None:
    """Why this run never becomes a version, whatever the line says; None where the record has no such reason."""
    if record.commit.trust != "own":
        return "the commit comes from a fork: what it trains is never published; merge it first"
    if record.commit.patch:
        return "the tree was dirty: git add and git commit, or git stash -u, and run again to publish"
    if was_drilled(record):
        return "a drilled run stays a candidate: run again without drill to publish"
    if is_experiment(record):
        keys = ", ".join(override.partition("=")[0] for override in record.inputs.overrides)
        return f"it is an experiment, with {keys} set on the command line: commit the change to publish"
    if not record.commit.protected:
        return _unprotected_reason(record)
    return _left_reason(record)


def _left_reason(record: Record) -> str | None:
    left = [clean(read.path, limit=120) for read in (record.ran.reads if record.ran else ()) if read.left]
    if not left:
        return None
    return (
        f"it read what an earlier run left in the home of its branch: {', '.join(left[:3])}"
        f'{", ..." if len(left) > 3 else ""}; with sandbox.home = "empty" in site.toml, or without that folder,'
        " gangline run --again publishes"
    )


def _unprotected_reason(record: Record) -> str:
    """The sentence of the resolve stage."""
    sentence = next((event.text for event in record.events if event.kind == UNPROTECTED), "")
    return sentence or (
        f"commit {record.commit.sha[:8]} was not part of a branch that publishes when git was asked at resolve"
    )


def skip_reason(record: Record, line: Line) -> str | None:
    """Why the line never publishes this run; None where its gates decide."""
    if stopped_early(record):
        return "it was asked to stop before its schedule ended (train.stop_at): run without to publish"
    branch = _branch_reason(record.commit.branch, line.publish.branches)
    return unpublishable_reason(record) or branch or _weights_reason(record)


def _weights_reason(record: Record) -> str | None:
    """Why the metrics that the gates judged may be those of other weights."""
    gate = next((each for each in record.gates if each.name == WEIGHTS and each.verdict == "unknown"), None)
    return f"gate {WEIGHTS} is unknown: {gate.reason}" if gate else None


def _branch_reason(branch: str | None, wanted: tuple[str, ...]) -> str | None:
    if branch is None:
        return f"no branch is checked out, only {', '.join(wanted)} is published"
    if not any_matches(branch, wanted):
        return f"branch {branch} is not published, only {', '.join(wanted)} is"
    return None
