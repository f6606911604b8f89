"""Searches of a store: where each lies, what it was asked, how it stands. Screens, reports and the service read here.

searches/<project>/<id>/search.json     the request, never changed
searches/<project>/<id>/limits.json     trials, budget, patience; a later call may raise them
searches/<project>/<id>/lease.json      its driver
searches/<project>/<id>/journal/        its trials
searches/<project>/<id>/answer.json     winner and base on fresh seeds
"""

import re
from base64 import b32encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from math import isclose

from gangline.errors import IntegrityError, UsageError
from gangline.line.record.store import read_record
from gangline.search.answer import read_answer
from gangline.search.study import SearchStudy
from gangline.spec.codec import canonical
from gangline.spec.record import Record, run_prefix
from gangline.spec.search import SearchAnswer, SearchLimits, SearchRequest, SearchView, Trial, TrialState
from gangline.storage.objects.protocol import ObjectStore, get_bounded

MOST_BYTES = 1 << 20
LOSS = "loss"
"""The metric that every step has."""
_ID = re.compile(r"s-[0-9a-f]{8}-[a-z2-7]{4}")
_AFTER_ALL = "zzzzzzzz"


def search_id(project: str, commit: str, *fields: object) -> str:
    """Id of a search; equal for every driver with the same commit and space."""
    letters = b32encode(sha256(canonical([project, commit, *fields])).digest()).decode().lower()[:4]
    return f"s-{commit[:8]}-{letters}"


def search_prefix(project: str, name: str) -> str:
    """Where everything of a search lies in the store."""
    return f"searches/{project}/{name}"


def list_searches(store: ObjectStore, project: str) -> list[SearchRequest]:
    """Searches of a project, newest first; objects that are no request are left out."""
    requests = []
    for name in _names(store, project):
        try:
            requests.append(read_request(store, project, name))
        except (IntegrityError, UsageError):
            continue
    return sorted(requests, key=lambda request: request.created, reverse=True)


def find_search(store: ObjectStore, name: str) -> SearchRequest:
    """The search whose id is `name` or, uniquely, begins with it.

    Raises:
        UsageError: None or several match; the message names them.
        IntegrityError: Its request is none.
    """
    places = [(project, each) for project in _folders(store, "searches/") for each in _names(store, project)]
    matches = [place for place in places if place[1].startswith(name)] if name else []
    exact = [place for place in matches if place[1] == name] or matches
    if len(exact) != 1:
        count = ", ".join(each for _, each in exact[:5]) or "none"
        raise UsageError(
            f"wanted the id of one search, found {count} for {name[:80]!r}; gangline search show lists them"
        )
    return read_request(store, *exact[0])


def read_request(store: ObjectStore, project: str, name: str) -> SearchRequest:
    """What the search was asked.

    Raises:
        UsageError: There is no such search.
        IntegrityError: The object is no request, or that of another search.
    """
    key = f"{search_prefix(project, name)}/search.json"
    blob = get_bounded(store, key, most_bytes=MOST_BYTES)
    if blob is None:
        raise UsageError(
            f"there is no search {name[:80]!r} of {project} in this store; gangline search show lists them"
        )
    request = SearchRequest.from_json(blob.data)
    if (request.project, request.id) != (project, name) or request.schema != 1:
        raise IntegrityError(f"{key}: wanted version 1 of the request of {name}, found another search's")
    return request


def read_limits(store: ObjectStore, request: SearchRequest) -> SearchLimits | None:
    """Limits of a search; None before its first driver wrote them."""
    key = f"{search_prefix(request.project, request.id)}/limits.json"
    blob = get_bounded(store, key, most_bytes=MOST_BYTES)
    return None if blob is None else SearchLimits.from_json(blob.data)


def read_search(store: ObjectStore, project: str, name: str) -> SearchView:
    """How a search stands; trials that have ended are compared with the records of their runs.

    Raises:
        UsageError: There is no such search.
        IntegrityError: Its request, limits, answer or journal is none; the message names the object.
        StorageError: The store failed.
    """
    request = read_request(store, project, name)
    study = SearchStudy(store, search_prefix(project, name), request)
    trials = tuple(_checked(store, request, trial) for trial in study.trials())
    limits = read_limits(store, request) or SearchLimits(trials=len(trials), parallel=1)
    return view_of(study, trials, limits, read_answer(store, request, trials))


def view_of(
    study: SearchStudy, trials: tuple[Trial, ...], limits: SearchLimits, answer: SearchAnswer | None = None
) -> SearchView:
    """A view of trials that are known."""
    request, attributes = study.request, study.attributes
    importance, method = study.importance()
    money = [trial.money for trial in trials if trial.money is not None]
    return SearchView(
        request=request, limits=limits, trials=trials, best=best_trial(request, trials), front=study.front(),
        spent_hours=sum(trial.device_hours for trial in trials) + float(attributes.get("confirm_hours", 0.0)),
        spent_money=sum(money) + float(attributes.get("confirm_money", 0.0)) if money else None,
        importance=importance, importance_by=method, ending=attributes.get("ending") or None, answer=answer,
        base_values=tuple(attributes.get("base_values", ())),
    )  # fmt: skip


def best_trial(request: SearchRequest, trials: tuple[Trial, ...]) -> int | None:
    """Number of the ended trial with the best first metric; the earlier of equals."""
    sign = 1.0 if request.better[0] == "lower" else -1.0
    ended = [trial for trial in trials if trial.state == "ended" and trial.values]
    best = min(ended, key=lambda trial: (sign * trial.values[0], trial.number), default=None)
    return None if best is None else best.number


def trial_record(store: ObjectStore, request: SearchRequest, run: str) -> Record | None:
    """Record of a trial's run; None before it was created."""
    return read_record(store, run_prefix(request.project, request.commit, run))


def values_of(record: Record, metrics: tuple[str, ...]) -> tuple[float, ...] | None:
    """Values of the metrics as recorded; None where one is missing."""
    values = []
    for metric in metrics:
        if metric in record.metrics:
            values.append(record.metrics[metric].value)
        elif metric == record.curve.metric and record.curve.points:
            values.append(record.curve.points[-1].value)
        else:
            return None
    return tuple(values)


def _checked(store: ObjectStore, request: SearchRequest, trial: Trial) -> Trial:
    """The trial with what the record of its run says: other values of an ended one, why an open one waits."""
    if not trial.run or trial.state in ("pruned", "failed"):
        return trial
    record = trial_record(store, request, trial.run)
    if record is None:
        return replace(trial, differs="its run has no record") if trial.state == "ended" else trial
    if trial.state == "ended":
        recorded = values_of(record, request.metrics)
        is_same = recorded is not None and all(map(isclose, recorded, trial.values))
        words = "no value" if recorded is None else ", ".join(f"{value:.6g}" for value in recorded)
        return trial if is_same else replace(trial, differs=f"its record says {words}")
    waits = record.gang.waiting if record.gang is not None else None
    state: TrialState = "running" if record.gang is not None and record.gang.admitted else "waiting"
    return replace(trial, state=state, reason=waits.who if waits and state == "waiting" else trial.reason)


def _names(store: ObjectStore, project: str) -> Iterator[str]:
    yield from (folder for folder in _folders(store, f"searches/{project}/") if _ID.fullmatch(folder))


def _folders(store: ObjectStore, prefix: str) -> Iterator[str]:
    """Names directly below `prefix`, with one list request for each."""
    after = ""
    while entries := store.list(prefix, after, 1):
        name = entries[0].key.removeprefix(prefix).partition("/")[0]
        yield name
        after = f"{prefix}{name}/{_AFTER_ALL}"
