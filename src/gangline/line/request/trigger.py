"""Whether a commit starts a run: `[trigger]` of its line decides, for a fork that of the default branch."""

from collections.abc import Sequence

from gangline.line.record.runs import list_runs
from gangline.line.request.branch_protection import read_protection
from gangline.line.request.run_request import RunRequest
from gangline.spec.config.line import TriggerTable
from gangline.spec.globs import any_matches
from gangline.storage.objects.protocol import ObjectStore

MAX_BACK = 50
"""Commits in whose records the last run of a branch is looked for."""


def fork_refusal(trigger: TriggerTable) -> str | None:
    """Why commits of forks start nothing; None: they may."""
    return 'trigger.forks = "off": commits of forks start nothing' if trigger.forks == "off" else None


def push_refusal(trigger: TriggerTable, *, branch: str | None, changed: Sequence[str] | None) -> str | None:
    """Why a push starts nothing, in one sentence; None: it starts a run.

    Args:
        trigger: Of the line that judges.
        branch: That was pushed to; None: unknown, or named by a stranger.
        changed: Paths since the last run of that branch; None: unknown, or there was none.
    """
    if branch is not None and not any_matches(branch, trigger.branches):
        return f"trigger.branches leaves {branch} out"
    if changed is not None and not any(any_matches(path, trigger.paths) for path in changed):
        return "no path of trigger.paths has changed since the last run of this branch"
    return None


def refusal(store: ObjectStore, question: RunRequest) -> str | None:
    """Why a push of the question's commit starts no run; None: it does, or has done so before."""
    is_fork, trigger = question.trust == "fork", question.line.trigger
    if is_fork:
        protection = read_protection(question.repository)
        if protection.trigger is None:
            return f"the line of the default branch, which judges forks, is not known: {protection.trouble}"
        trigger = protection.trigger
        if why := fork_refusal(trigger):
            return why
    branch = None if is_fork else question.branch  # a fork names its branches as it likes
    changed = None if trigger.paths == ("**",) else _changed(store, question)
    return push_refusal(trigger, branch=branch, changed=changed)


def _changed(store: ObjectStore, question: RunRequest) -> tuple[str, ...] | None:
    """Paths that differ from what was run last of this branch; None where nothing was, or this commit itself."""
    repository = question.repository
    for commit in (question.commit, *repository.ancestors(question.commit, MAX_BACK)):
        runs = list_runs(store, project=question.line.project.name, commit=commit)
        if any(each.commit.branch == question.branch and each.commit.trust == question.trust for each in runs):
            return None if commit == question.commit else repository.changed(repository.tree(commit), question.tree)
    return None
