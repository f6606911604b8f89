"""Trigger rules: whether a push starts a run, by `[trigger]` of the commit's line (a fork: of the default branch)."""

from collections.abc import Sequence

from gangline.line.record.runs import list_runs
from gangline.line.request.branch_protection import read_protection
from gangline.line.request.run_request import RunRequest
from gangline.spec.config.line import TriggerTable
from gangline.spec.globs import any_matches
from gangline.storage.objects.protocol import ObjectStore

MAX_BACK = 50
"""Number of commits whose records are searched for the last run of a branch."""


def fork_refusal(trigger: TriggerTable) -> str | None:
    """Why commits of forks start no runs; None if they do."""
    return 'trigger.forks = "off": commits of forks start nothing' if trigger.forks == "off" else None


def push_refusal(trigger: TriggerTable, *, branch: str | None, changed: Sequence[str] | None) -> str | None:
    """Why a push starts no run, in one sentence; None if it does.

    Args:
        trigger: The rules.
        branch: Branch of the push; None if unknown or untrusted.
        changed: Paths since the last run of that branch; None if unknown, or there was none.
    """
    if branch is not None and not any_matches(branch, trigger.branches):
        return f"trigger.branches leaves {branch} out"
    if changed is not None and not any(any_matches(path, trigger.paths) for path in changed):
        return "no path of trigger.paths has changed since the last run of this branch"
    return None


def refusal(store: ObjectStore, request: RunRequest) -> str | None:
    """Why a push of the commit starts no run; None if it does, or did before."""
    is_fork, trigger = request.trust == "fork", request.line.trigger
    if is_fork:
        protection = read_protection(request.repository)
        if protection.trigger is None:
            return f"the line of the default branch, which judges forks, is not known: {protection.problem}"
        trigger = protection.trigger
        if why := fork_refusal(trigger):
            return why
    branch = None if is_fork else request.branch  # the branch name of a fork is untrusted
    changed = None if trigger.paths == ("**",) else _changed(store, request)
    return push_refusal(trigger, branch=branch, changed=changed)


def _changed(store: ObjectStore, request: RunRequest) -> tuple[str, ...] | None:
    """Paths that differ from the last run of this branch; None if there is none, or this commit has one."""
    repository = request.repository
    for commit in (request.commit, *repository.ancestors(request.commit, MAX_BACK)):
        runs = list_runs(store, project=request.line.project.name, commit=commit)
        if any(run.commit.branch == request.branch and run.commit.trust == request.trust for run in runs):
            return None if commit == request.commit else repository.changed(repository.tree(commit), request.tree)
    return None
