"""Trigger rules: whether an order starts a run, by the `[trigger]` table of its line and the changed paths.

For a fork the line of the target branch decides. Executes nothing of the commit.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from gangline.errors import ConfigError
from gangline.forge.protocol import RefHead
from gangline.git.clones import Clones
from gangline.line.record.store import RecordStore
from gangline.line.request.trigger import fork_refusal, push_refusal
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.runs import RunIndex
from gangline.serve.database.types import Order, RunFilter
from gangline.serve.orders.commit_reader import CommitContent, RunIdentity, read_commit
from gangline.serve.orders.sources import CommitSource
from gangline.spec.config.line import Line, TriggerTable
from gangline.spec.record import Record, run_prefix
from gangline.storage.objects.protocol import ObjectStore

SWEPT_SECONDS = 86_400.0
"""Greatest age of a commit that the sweep builds; older ones are not a missed event."""


def trigger_refusal(
    order: Order, trigger: TriggerTable, *, branch: str | None, changed: Sequence[str] | None, is_fork: bool = False,
    commit_age_seconds: float = 0.0,
) -> str | None:  # fmt: skip
    """Why no run starts, in one sentence; None: one does. A request by name, or by a schedule, always starts one.

    `changed` are the paths since the last commit of this place that was built; None: unknown, or none was built.
    """
    if is_fork and (why := fork_refusal(trigger)):
        return why
    if order.cause in {"api", "schedule"}:
        return None
    if why := push_refusal(trigger, branch=branch, changed=changed):
        return why
    if order.cause == "sweep" and commit_age_seconds > SWEPT_SECONDS:
        return "no event named this commit, and it is older than a day: start it by hand if it is needed"
    return None


def newest_attempt(store: ObjectStore, identity: RunIdentity) -> Record | None:
    """The newest attempt at what is asked."""
    newest: Record | None = None
    for attempt in count(1):
        prefix = run_prefix(identity.project, identity.commit.sha, identity.run_id(attempt))
        record = RecordStore(store, prefix).read()
        if record is None:
            break
        newest = record
    return newest


def changed_paths(
    source: CommitSource, clones: Clones, index: RunIndex, order: Order, *, commit: str, branch: str | None
) -> list[str] | None:
    """Paths that differ from what was built last at this place; None: nothing was, or it is not known."""
    if order.pull_request is not None and source.forge is not None:
        return source.forge.changes(source.repository, order.pull_request)
    if branch is None:
        return None
    rows = index.search(RunFilter(project=order.project, branch=branch, limit=20))
    built = [row.commit for row in rows if row.verdict not in {"cancelled", "superseded"} and row.trust == "own"]
    if not built or built[0] == commit:
        return None
    return clones.changed(source.clone, built[0], commit)


def find_pull_request_order(
    context: ServiceContext, clones: Clones, order: Order, source: CommitSource, head: RefHead
) -> int | None:
    """Pull request of our own whose order asks for this branch and commit: its run is reported there."""
    if source.forge is None or order.pull_request is not None or order.cause != "push":
        return None
    waiting = context.database.orders.list(states=["queued", "driving"], projects=[order.project], limit=200)
    for each in waiting:
        if each.pull_request is not None and each.branch == head.branch and each.trust == "own" and each.kind == "run":
            pull = source.head(clones, each.ref)
            if pull is not None and pull.commit == head.commit and not pull.is_fork:
                return each.pull_request
    return None


def line_to_run(
    context: ServiceContext,
    clones: Clones,
    order: Order,
    source: CommitSource,
    head: RefHead,
    *,
    content: CommitContent,
) -> Line | str:
    """The line of the commit that was read; or why nothing is started.

    Raises:
        ConfigError: The line does not hold, or is not what the site calls it.
    """
    line = content.require_line()
    if line is None:
        return "no line.toml there"
    if content.identity is not None:
        _check_project(content.identity.project, order.project)
    rules = _target_line(context, clones, order, source, head) if head.is_fork else line
    if rules is None:
        return "no line.toml on its target branch"
    changed = None
    if rules.trigger.paths != ("**",) and order.cause not in {"api", "schedule"}:
        runs = context.database.runs
        changed = changed_paths(source, clones, runs, order, commit=head.commit, branch=order.branch)
    branch = head.target if head.is_fork else order.branch  # a fork names its branches as it likes
    no = trigger_refusal(
        order, rules.trigger, branch=branch, changed=changed, is_fork=head.is_fork,
        commit_age_seconds=content.age_seconds,
    )  # fmt: skip
    return no or line


def _target_line(
    context: ServiceContext, clones: Clones, order: Order, source: CommitSource, head: RefHead
) -> Line | None:
    """Line of the target branch of a fork's pull request: its triggers apply to the fork."""
    ref = f"refs/heads/{head.target}"
    target = source.head(clones, ref)
    if target is None:
        return None
    source.fetch(clones, ref)
    plain = replace(order, overrides=(), trust="own", pull_request=None, branch=head.target)
    place = clones.checkout(source.clone, target.commit)
    return read_commit(place, target.commit, plain, environ=context.environ, is_over=clones.is_over).require_line()


def _check_project(found: str, wanted: str) -> None:
    """A repository builds the project that the site gave it, whatever the line of its default branch calls itself."""
    if found != wanted:
        raise ConfigError(
            f"line.toml: project.name: wanted {wanted}, as the site calls this repository, found {found};"
            " change one of them"
        )
