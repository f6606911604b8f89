"""Functions as trials: a search without trainings, and a store in memory for many of them."""

import json
import threading
from dataclasses import dataclass, field
from hashlib import sha256

from gangline.search.driver import SearchDriver
from gangline.search.trials import RunStatus, TrialRun
from gangline.spec.search import Dimension, SearchLimits, SearchRequest
from gangline.storage.objects.protocol import Blob, Entry

ID, PROJECT = "s-00000000-aaaa", "demo"
PREFIX = f"searches/{PROJECT}/{ID}"


def make_request(**fields):
    """A search over one rate and one choice, of a metric that is measured at rungs."""
    defaults = {
        "id": ID, "project": PROJECT, "commit": "0" * 40, "metrics": ("m",), "better": ("lower",), "measured_by": "m",
        "space": {"a.lr": Dimension(low=1e-4, high=1e-1, log=True), "a.size": Dimension(choices=(1, 2, 4))},
        "sampler": "tpe", "pruner": "halving", "seed": 1, "steps": 90, "rungs": (10, 30), "created": "2026",
    }  # fmt: skip
    return SearchRequest(**defaults | fields)


def bowl(settings, step):
    """Best at a rate of 0.01, and better with every step."""
    return abs(settings["a.lr"] - 0.01) * 10 + settings["a.size"] * 0.01 + 1 / (1 + step)


class MemoryStore:
    """Objects in a dictionary."""

    url = "file:/memory"

    def __init__(self):
        self.objects, self._lock, self.gets = {}, threading.Lock(), 0

    def get(self, key, start=0, size=None):
        self.gets += 1
        data = self.objects.get(key)
        return None if data is None else Blob(data, sha256(data).hexdigest(), len(data))

    def put(self, key, data):
        self.objects[key] = data
        return sha256(data).hexdigest()

    def put_if_absent(self, key, data):
        with self._lock:
            return None if key in self.objects else self.put(key, data)

    def compare_and_set(self, key, data, expected):
        with self._lock:
            if key not in self.objects or sha256(self.objects[key]).hexdigest() != expected:
                return None
            return self.put(key, data)

    def list(self, prefix, after="", limit=1000):
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return [Entry(key, len(self.objects[key]), 0.0) for key in keys[:limit]]


class Screen:
    """Keeps what it is shown."""

    def __init__(self):
        self.views, self.notes = [], []

    def show(self, view):
        self.views.append(view)

    def note(self, text):
        self.notes.append(text)


@dataclass
class FunctionRuns:
    """Runs that go on by one rung with each look; `starts` counts how often each was begun."""

    request: SearchRequest
    curve: object = bowl
    hours: object = lambda settings: 1.0
    fails: object = lambda settings: ""
    runs: dict = field(default_factory=dict)
    taken: set = field(default_factory=set)

    def identify(self, settings):
        run = sha256(json.dumps(sorted(settings.items())).encode()).hexdigest()[:8]
        return TrialRun(id=run, existed=run in self.taken)

    def start(self, run, settings, *, again):
        if run not in self.runs:
            self.begin(run, dict(settings))

    def begin(self, run, settings):
        self.runs[run] = {"settings": settings, "step": 0, "cancelled": "", "starts": 1}

    def look(self, run):
        if run not in self.runs:
            return RunStatus(state="absent", is_driven=False)
        state, places = self.runs[run], (*self.request.rungs, self.request.steps)
        settings, reason = state["settings"], self.fails(state["settings"])
        if reason:
            return RunStatus(state="failed", reason=reason, is_own_fault=True)
        over = state["cancelled"] or state["step"] >= self.request.steps
        if not over:
            state["step"] = next(each for each in places if each > state["step"])
        series = {step: self.curve(settings, step) for step in places if step <= state["step"]}
        hours = self.hours(settings) * state["step"] / self.request.steps
        kind = "running" if not over else "cancelled" if state["cancelled"] else "ended"
        values = tuple(self.curve(settings, self.request.steps) for _ in self.request.metrics) if over else None
        return RunStatus(state=kind, step=state["step"], series=series, values=values, hours=hours)

    def cancel(self, run, reason):
        if run in self.runs and self.runs[run]["step"] < self.request.steps:
            self.runs[run]["cancelled"] = reason

    def leave(self):
        pass

    @property
    def steps(self):
        """Of all runs together."""
        return sum(each["step"] for each in self.runs.values())


def make_driver(store, request=None, runs=None, *, screen=None, trial_hours=None, kind=SearchDriver, **limits):
    """A driver of functions that never sleeps."""
    request = request or make_request()
    return kind(
        store, request, runs=runs or FunctionRuns(request), screen=screen or Screen(),
        limits=SearchLimits(**{"trials": 12, "parallel": 1, "patience": 0, "confirm_seeds": 0} | limits),
        trial_hours=trial_hours, pause=lambda _: None,
    )  # fmt: skip
