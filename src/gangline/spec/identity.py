"""Run ids and names of gangs: the same request gives the same name, so a retry rejoins. Pure."""

import base64
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from gangline.errors import IntegrityError, UsageError
from gangline.spec.codec import canonical
from gangline.spec.plan import Role
from gangline.spec.record import CommitInfo, Record

_ROLE_SUFFIX: dict[Role, tuple[str, str]] = {
    "train": ("", "t"), "evaluate": ("-eval", "e"), "prove": ("-prove", "p"), "score": ("-score", "s"),
}  # fmt: skip
ROLES: tuple[Role, ...] = ("train", "evaluate", "prove")
"""Stages that have a gang, in their order."""
MAX_GANG_NAME = 42
ATTEMPTS = 100
"""Numbers of each chain of gangs: those of the n-th further seed of a program begin at n * 100 + 1."""
MOST_CHAINS = 100
"""Most chains of one role: a gang's number has at most four digits."""
_GANG_TAIL = re.compile("|".join(rf"{first}|-{letter}[0-9]{{1,4}}" for first, letter in _ROLE_SUFFIX.values()))
_RUN_PREFIX = re.compile(r"runs/(?P<project>[a-z][a-z0-9-]{0,19})/(?P<eight>[0-9a-f]{8})(?:[0-9a-f]{32}|[0-9a-f]{56})"
                         r"/(?P=project)-(?P=eight)-[a-z0-9]{6}")  # fmt: skip


def run_id(project: str, commit: CommitInfo, *, line: str, attempt: int) -> str:
    """`<project>-<commit 8>-<6>`, at most 36 characters.

    Whose commit it is, and whether it is part of a protected branch, is in the id: a run of a fork or of a feature
    branch is another run than that of the same commit on the protected branch.

    Args:
        project: Slug of the line.
        commit: What is built.
        line: Digest of the effective line.
        attempt: From 1; `--again` asks for the next one.
    """
    return _name(project, commit, [project, _content(commit), line, attempt])


def score_id(project: str, commit: CommitInfo, asked: Sequence[str]) -> str:
    """Name in the form of a run id for the gang that answers `asked`; it has no record."""
    return _name(project, commit, ["score", project, commit.sha, *asked])


def _name(project: str, commit: CommitInfo, facts: list[Any]) -> str:
    hashed = sha256(canonical(facts)).digest()
    return f"{project}-{commit.sha[:8]}-{base64.b32encode(hashed)[:6].decode().lower()}"


def check_identity(record: Record) -> None:
    """Derive the run id again from what the record says of its commit, line and attempt.

    Raises:
        IntegrityError: It is not the id of that run: trust, branch, tree, line or attempt were changed afterwards.
    """
    run = record.run
    derived = run_id(run.project, record.commit, line=record.inputs.line, attempt=run.attempt)
    if run.id != derived:
        raise IntegrityError(f"{run.id}: its commit, trust, line and attempt make {derived}: the record was changed")


def _content(commit: CommitInfo) -> str:
    content = commit.sha if commit.patch is None else commit.tree
    if commit.trust == "fork":
        return f"fork:{content}"
    return content if commit.protected or commit.patch is not None else f"branch:{content}"


def gang_name(run: str, role: Role, attempt: int = 1) -> str:
    """Name of a run's gang, RFC 1035, at most 42 characters; later attempts of one role end in `-t2`, `-e2`, `-p2`."""
    first, letter = _ROLE_SUFFIX[role]
    name = run + (first if attempt == 1 else f"-{letter}{attempt}")
    assert len(name) <= MAX_GANG_NAME, name
    return name


def gang_number(chain: int, attempt: int) -> int:
    """Number of a gang among all of its role."""
    assert chain < MOST_CHAINS, chain
    assert attempt < ATTEMPTS, attempt
    return chain * ATTEMPTS + attempt


def seed_gangs(record: Record) -> dict[int, str]:
    """First gang of each further seed of a program, in the order they train; a task trains them all in one gang."""
    if record.inputs.values.get("project.task"):
        return {}
    first, *others = record.inputs.seeds or (1,)
    del first  # trained by the train gang
    return {
        seed: gang_name(record.run.id, "evaluate", gang_number(chain, 1)) for chain, seed in enumerate(others, start=1)
    }


def worker_gangs(record: Record) -> dict[int, str]:
    """First gang of each worker of a parameter server; empty without one."""
    workers = record.inputs.values.get("train.parameter_server.workers") or 0
    return {worker: gang_name(record.run.id, "train", gang_number(worker, 1)) for worker in range(1, workers + 1)}


def is_gang_of(name: str, run: str) -> bool:
    """Could `run` have called a gang so?"""
    tail = name.removeprefix(run)
    return tail != name and _GANG_TAIL.fullmatch(tail) is not None


def is_run_prefix(prefix: str) -> bool:
    """Could a run lie there? Project, commit and run id have their forms and name each other."""
    return _RUN_PREFIX.fullmatch(prefix) is not None


def parts(run: str) -> tuple[str, str]:
    """Project and first eight letters of the commit of a run id.

    Raises:
        UsageError: It is not a run id.
    """
    pieces = run.rsplit("-", 2)
    if len(pieces) != 3 or len(pieces[1]) != 8 or len(pieces[2]) != 6 or not pieces[0]:
        raise UsageError(f"wanted a run id like bytegpt-9f31c2a0-k7q2mx, found {run!r}; gangline list shows them")
    return pieces[0], pieces[1]
