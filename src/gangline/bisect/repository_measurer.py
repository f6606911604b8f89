"""Measurements of commits: from records if they exist, else by a shortened training.

Such a run has the commit's own line with fewer steps of the same schedule, a seed, no quality gates and no second plan.
It has an id of its own, is never a base, is not published, and does not report to a forge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from gangline.bisect.recorded_values import CommitValues, MetricAtStep, Surroundings, read_values, surroundings_now
from gangline.build import code_layer
from gangline.errors import BuildError, ConfigError, NonFiniteError, TrainingError
from gangline.line.gangs.follow import GangUnreachable
from gangline.line.record.runs import list_runs
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.run.driver import RunWorkspace
from gangline.line.stages.run_line import run_line
from gangline.line.stages.tracked_files import find_pointers
from gangline.spec.codec import digest
from gangline.spec.config.line import DataTable
from gangline.spec.config.load import effective
from gangline.spec.globs import matches

_TABLES = ("model", "optimizer", "data", "env")
_TRAIN_ALIKE = frozenset({"train.seed", "train.stop_at"})


@dataclass(kw_only=True)
class RepositoryMeasurer:
    """Measures commits of one repository: from records if they have the value, else by training.

    A copy with another `wanted` (`dataclasses.replace`) shares what was read of the commits.
    """

    workspace: RunWorkspace
    wanted: MetricAtStep
    target: str | None = None
    """Replaces the target of the site."""
    _requests: dict[str, RunRequest | str] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    _surroundings: dict[tuple[DataTable, str, bool], Surroundings] = field(default_factory=dict)

    def recorded(self, sha: str) -> CommitValues:
        request = self._request(sha)
        if isinstance(request, str):
            return CommitValues(problem=request)
        records = list_runs(self.workspace.store, project=request.line.project.name, commit=sha)
        return read_values(records, effective(request.line), self.wanted, self._now(request))

    def _now(self, request: RunRequest) -> Surroundings:
        """Read once for all commits with the same data outside of the commit."""
        table = request.line.data
        tree = request.tree if any(text.startswith("repo:") for text in table.text) else ""
        key = (table, tree, request.line.env.lock is None)
        if key not in self._surroundings:
            self._surroundings[key] = surroundings_now(
                request, self.workspace.site, self.workspace.store, environ=self.workspace.environ
            )
        return self._surroundings[key]

    def key(self, sha: str) -> str:
        """Digest of code, data and the keys of the line that decide the weights; builds nothing."""
        if sha not in self._keys:
            request = self._request(sha)
            self._keys[sha] = "" if isinstance(request, str) else _train_key(request)
        return self._keys[sha]

    def train(self, sha: str, seeds: Sequence[int]) -> str:
        """Same as the protocol's; raises errors that leave a run open: no capacity, store unavailable, Ctrl-C."""
        request = self._request(sha)
        if isinstance(request, str):
            return request
        problem = ""
        shares = request.line.project.task is not None
        for first, count in _consecutive(seeds) if shares else ((seed, 1) for seed in seeds):
            problem = problem or self._train(sha, first, count)
        return problem

    def _train(self, sha: str, seed: int, count: int) -> str:
        """Train `count` seeds from `seed` on in one gang; a program trains one at a time."""
        numbers = {"train.stop_at": self.wanted.at, "train.seed": seed, "evaluate.seeds": count}
        overrides = tuple(f"{key}={value}" for key, value in numbers.items())
        workspace = self.workspace
        try:
            run_line(
                workspace.repo, site=replace(workspace.site, forge={}), environ=workspace.environ, commit=sha,
                overrides=(*overrides, "gate.quality=[]", 'prove.plan="off"'), again=self._needs_again(sha, numbers),
                target=self.target, observer=workspace.observer,
            )  # fmt: skip
        except NonFiniteError:
            return ""  # it diverged, which the record says
        except GangUnreachable:
            raise  # the gang is still running; the commit is not the cause
        except (ConfigError, BuildError, TrainingError) as error:
            return str(error).splitlines()[0]
        return ""

    def _needs_again(self, sha: str, numbers: Mapping[str, int]) -> bool:
        """Whether an equal training was cancelled before, or had other data or packages than now."""
        request = self._request(sha)
        assert not isinstance(request, str), "a commit that is trained has a request"
        records = [
            record
            for record in list_runs(self.workspace.store, project=request.line.project.name, commit=sha)
            if all(record.inputs.values.get(key) == value for key, value in numbers.items())
        ]
        newest = max(records, key=lambda record: record.run.attempt, default=None)
        if newest is None:
            return False
        is_older = newest.run.created < self.wanted.since
        return newest.run.verdict in {"cancelled", "superseded"} or (
            is_older and self._now(request).other_in(newest) != ""
        )

    def _request(self, sha: str) -> RunRequest | str:
        """Request of the unchanged commit, or the reason why it has none."""
        if sha not in self._requests:
            try:
                self._requests[sha] = resolve_request(self.workspace.repo, commit=sha, overrides=(), strategy=None)
            except ConfigError as error:
                self._requests[sha] = str(error).splitlines()[0]
        return self._requests[sha]


def _consecutive(seeds: Sequence[int]) -> list[tuple[int, int]]:
    """(first, count) of each group of consecutive numbers."""
    rows: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if rows and sum(rows[-1]) == seed:
            rows[-1] = (rows[-1][0], rows[-1][1] + 1)
        else:
            rows.append((seed, 1))
    return rows


def _train_key(request: RunRequest) -> str:
    line, repository = request.line, request.repository
    try:
        pointers = find_pointers(repository, request.tree, line, commit=request.commit)
        code = code_layer.pack(
            repository, request.tree, line.project, commit=request.commit, placed=pointers.lfs_paths
        ).data
    except ConfigError:
        return ""
    lock = repository.file(request.tree, line.env.lock) if line.env.lock else b""
    globs = [pattern.removeprefix("repo:") for pattern in line.data.text if pattern.startswith("repo:")]
    data = [
        (entry.path, entry.blob)
        for entry in repository.entries(request.tree)
        if any(matches(entry.path, glob) for glob in globs)
    ]
    data += [(pointer.path, pointer.digest) for pointer in pointers.pointers]
    flat: dict[str, Any] = effective(line)
    train = {key: value for key, value in flat.items() if key.startswith("train.") and key not in _TRAIN_ALIKE}
    tables = {name: getattr(line, name) for name in _TABLES}
    program = [line.project.task, line.project.command]
    return digest([sha256(code).hexdigest(), sha256(lock or b"").hexdigest(), data, train, tables, program])
