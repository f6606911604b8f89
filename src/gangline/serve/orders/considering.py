"""Whether anything is to be run of the commit at a ref: what its line and its triggers say. Runs nothing of it."""

from dataclasses import replace

from gangline.errors import ConfigError
from gangline.line.clones import Clones
from gangline.line.forge.protocol import Head
from gangline.line.strangers import shown_name
from gangline.serve.desk import ServiceDesk
from gangline.serve.orders.commit_reader import ReadCommit, read_commit
from gangline.serve.orders.lines import changed_paths
from gangline.serve.orders.rules import Found, refusal
from gangline.serve.orders.sources import Source
from gangline.serve.types import Order
from gangline.spec.line import Line


def find_twin(desk: ServiceDesk, clones: Clones, order: Order, source: Source, head: Head) -> int | None:
    """Pull request of our own whose order asks for this branch and commit: its run tells more people."""
    if source.forge is None or order.pull_request is not None or order.cause != "push":
        return None
    waiting = desk.database.orders.list(states=["queued", "driving"], projects=[order.project], limit=200)
    for each in waiting:
        if each.pull_request is not None and each.branch == head.branch and each.trust == "own":
            pull = source.head(clones, each.ref)
            if pull is not None and pull.commit == head.commit and not pull.is_fork:
                return each.pull_request
    return None


def line_to_run(
    desk: ServiceDesk, clones: Clones, order: Order, source: Source, head: Head, *, read: ReadCommit
) -> Line | str:
    """The line of the commit that was read; or why nothing is started.

    Raises:
        ConfigError: The line does not hold, or is not what the site calls it.
    """
    _demand_shown(order)
    line = read.demand_line()
    if line is None:
        return "no line.toml there"
    _demand_project(line, order.project)
    rules = _target_line(clones, order, source, head) if head.is_fork else line
    if rules is None:
        return "no line.toml on the branch that it wants to change"
    changed = None
    if rules.trigger.paths != ("**",) and order.cause not in {"api", "schedule"}:
        runs = desk.database.runs
        changed = changed_paths(source, clones, runs, order, commit=head.commit, branch=order.branch)
    found = Found(
        branch=head.target if head.is_fork else order.branch,  # a fork names its branches as it likes
        is_fork=head.is_fork,
        changed=changed,
        commit_age_seconds=read.age_seconds,
    )
    return refusal(order, rules.trigger, found) or line


def _target_line(clones: Clones, order: Order, source: Source, head: Head) -> Line | None:
    """Of the branch that a fork wants to change: its triggers judge the fork."""
    ref = f"refs/heads/{head.target}"
    target = source.head(clones, ref)
    if target is None:
        return None
    source.fetch(clones, ref)
    plain = replace(order, overrides=(), trust="own", pull_request=None, branch=head.target)
    place = clones.checkout(source.clone, target.commit)
    return read_commit(place, target.commit, plain, is_over=clones.is_over).demand_line()


def _demand_shown(order: Order) -> None:
    """Rules speak of branches by name: a name that looks like another one's meets none of them."""
    if order.branch is not None and order.trust == "own" and shown_name(order.branch) is None:
        raise ConfigError(
            f"wanted a branch whose name shows all of its characters, found {ascii(order.branch)[:80]};"
            " push the commit to a branch of another name"
        )


def _demand_project(line: Line, project: str) -> None:
    """A repository builds the project that the site gave it, whatever its line calls itself."""
    if line.project.name != project:
        raise ConfigError(
            f"line.toml: project.name: wanted {project}, as the site calls this repository,"
            f" found {line.project.name}; change one of them"
        )
