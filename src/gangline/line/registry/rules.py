"""Which runs become versions. Pure: read from record and line alone."""

from gangline.errors import GateError
from gangline.line.registry.types import Skipped
from gangline.spec.globs import any_matches
from gangline.spec.line import Line
from gangline.spec.marks import is_experiment, was_cut_short, was_drilled
from gangline.spec.record import UNPROTECTED, Record


def check_rules(record: Record, line: Line) -> Skipped | None:
    """None where the run may become a version; a reason where it never does.

    Raises:
        GateError: A gate, the proof or the missing base says no.
    """
    reason = _not_wanted(record, line)
    if reason is None:
        check_gates(record, require_base=line.gate.require_base)
    return Skipped(reason=reason) if reason else None


def check_gates(record: Record, *, require_base: bool = False) -> str:
    """One sentence on gates and proof; raises GateError where one of them says no."""
    for gate in record.gates:
        lacks_base = require_base and gate.verdict == "unknown" and gate.name != "reproducible"
        if gate.verdict == "no" or lacks_base:
            raise GateError(f"gate {gate.name} says {gate.verdict}: {gate.reason}")
    proof = record.proof
    if proof and (proof.tensors_equal != proof.tensors or proof.same_loss == "no"):
        equal = f"{proof.tensors_equal} of {proof.tensors} tensors equal"
        raise GateError(f"the proof under {proof.plan} differs: {equal}, same loss: {proof.same_loss}")
    unknown = sum(gate.verdict == "unknown" for gate in record.gates)
    return f"{len(record.gates)} gates, none says no" + (f", {unknown} unknown" if unknown else "")


def why_never(record: Record) -> str | None:
    """Why no line and no person makes this run a version; None where nothing in its record speaks against it."""
    if record.commit.trust != "own":
        return "the commit comes from a fork: what it trains is never published; merge it first"
    if record.commit.patch:
        return "the tree was dirty: git add and git commit, or git stash -u, and run again to publish"
    if was_drilled(record):
        return "a drilled run stays a candidate: run again without drill to publish"
    if is_experiment(record):
        keys = ", ".join(each.partition("=")[0] for each in record.inputs.overrides)
        return f"it is an experiment, with {keys} set on the command line: commit the change to publish"
    if not record.commit.protected:
        return _unprotected(record)
    return None


def _unprotected(record: Record) -> str:
    """What resolve said of it."""
    told = next((each.text for each in record.events if each.kind == UNPROTECTED), "")
    return told or (
        f"commit {record.commit.sha[:8]} was part of no branch that publishes when it was resolved, as git says"
    )


def _not_wanted(record: Record, line: Line) -> str | None:
    if was_cut_short(record):
        return "it was asked to stop before its schedule ended (train.stop_at): run without to publish"
    return why_never(record) or _other_branch(record.commit.branch, line.publish.branches)


def _other_branch(branch: str | None, wanted: tuple[str, ...]) -> str | None:
    if branch is None:
        return f"no branch is checked out, only {', '.join(wanted)} is published"
    if not any_matches(branch, wanted):
        return f"branch {branch} is not published, only {', '.join(wanted)} is"
    return None
