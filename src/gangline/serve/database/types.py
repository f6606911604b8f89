"""Data types of the service: orders, index rows of runs, principals, filters. Frozen data, no I/O."""

from dataclasses import dataclass, field
from typing import Literal

from gangline.errors import IntegrityError
from gangline.report.facts import Side
from gangline.spec.record import Trust, run_prefix

Role = Literal["reader", "runner", "maintainer", "admin"]
ROLES: tuple[Role, ...] = ("reader", "runner", "maintainer", "admin")
"""Each may do what those before it may: look; start and cancel; approve forks and promote; tokens and everything."""
OrderState = Literal["queued", "driving", "parked", "done", "dropped", "quarantined"]
OrderKind = Literal["run", "search"]
Cause = Literal["push", "pull_request", "schedule", "api", "sweep"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """Who calls."""

    name: str
    roles: dict[str, Role] = field(default_factory=dict)
    """Role in each project; `*` is every project."""

    def may(self, role: Role, project: str) -> bool:
        """Whether a role for `project`, or for all projects, includes `role`."""
        held = [self.roles[key] for key in ("*", project) if key in self.roles]
        return any(ROLES.index(each) >= ROLES.index(role) for each in held)


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A request to build: the commit that a ref has when the order starts, or a named commit."""

    id: int = 0
    """Given by the database."""
    project: str
    forge: str | None = None
    """NAME of `[forge.NAME]`; None: a repository of this machine (`serve.repositories`)."""
    repository: str = ""
    """Name on the forge: `owner/name`."""
    ref: str
    """`refs/heads/<branch>`, or the ref of a pull request's head."""
    commit: str | None = None
    """None: that of the ref, looked up when the order starts and then stored here."""
    branch: str | None = None
    pull_request: int | None = None
    trust: Trust = "own"
    cause: Cause = "push"
    kind: OrderKind = "run"
    """`search`: a pull request was labelled, and settings of its head are searched."""
    overrides: tuple[str, ...] = ()
    again: bool = False
    asked_by: str = ""
    """Principal or delivery."""
    state: OrderState = "queued"
    run: str | None = None
    """Run id, once there is one."""
    tries: int = 0
    not_before: float = 0.0
    """Seconds since the epoch; the order does not start earlier."""
    note: str = ""
    """Why it is parked, dropped or quarantined; one sentence."""
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class DatabaseProblem:
    """Why the database cannot work."""

    summary: str
    """Rest of a sentence that begins with `database`: `is damaged`; no path, no host, as anybody may read it."""
    detail: str
    """The whole of it, for the log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """A run as lists show it: a copy of parts of its record, which stays authoritative."""

    run: str
    project: str
    commit: str
    branch: str | None
    subject: str
    pull_request: int | None
    trust: str
    state: str
    verdict: str
    """Verdict of the record; `open` while it runs."""
    reason: str
    attempt: int
    created: str
    plan: str | None
    metric: str | None
    """Name of the headline metric."""
    value: float | None
    base: float | None
    side: Side
    seconds: float
    stage: str
    """The stage that failed; without one the last that is not waiting."""
    waiting: str | None
    """Who holds what the gang waits for."""
    exit_code: int | None
    seq: int
    """Number of the record that the row was made from; a row never goes back."""
    marks: str = ""
    """`experiment`, `dirty`, `drilled`: it is never a base and never published."""

    def __post_init__(self) -> None:
        if project_of(self.run) != self.project:
            raise IntegrityError(f"{self.run[:80]} is no run of {self.project[:40]}")

    @property
    def prefix(self) -> str:
        """Prefix of the run's objects in the store."""
        return run_prefix(self.project, self.commit, self.run)


def project_of(run: str) -> str:
    """Project of the run, from its id."""
    return run.rsplit("-", 2)[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """What a list shows; every part that is given must hold."""

    projects: tuple[str, ...] | None = None
    """Those the principal may read; None: all."""
    project: str | None = None
    branch: str | None = None
    commit: str | None = None
    """Beginning of an object name."""
    verdict: str | None = None
    pull_request: int | None = None
    text: str | None = None
    """Somewhere in subject, branch or run id."""
    before: tuple[str, str] | None = None
    """(created, run) of the last row of the page before: pages go from new to old."""
    limit: int = 50
