"""Measurements of commits: from records where they exist, else from a training run that is cut short.

Such a run is the commit's own line with another end: so many steps of the same schedule, a seed, no gates, no second
plan. It has an id of its own, is no base, is never published, and reports to no forge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from gangline.bisect.recorded_values import CommitValues, MetricAtStep, read_values
from gangline.build import code_layer
from gangline.errors import BuildError, ConfigError, NonFiniteError, TrainingError
from gangline.line.gangs.follow import GangUnreachable
from gangline.line.record.runs import list_runs
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.run.driver import RunWorkspace
from gangline.line.stages.run_line import run_line
from gangline.spec.codec import digest
from gangline.spec.config.load import effective
from gangline.spec.globs import matches

_TABLES = ("model", "optimizer", "data", "env")
_TRAIN_ALIKE = frozenset({"train.seed", "train.stop_at"})


@dataclass(kw_only=True)
class RepositoryMeasurer:
    """Answers for one repository: from records where they say it, else by training."""

    desk: RunWorkspace
    wanted: MetricAtStep
    target: str | None = None
    """Where ranks run, instead of the site's."""
    _questions: dict[str, RunRequest | str] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def known(self, sha: str) -> CommitValues:
        asked = self._question(sha)
        if isinstance(asked, str):
            return CommitValues(problem=asked)
        records = list_runs(self.desk.store, project=asked.line.project.name, commit=sha)
        return read_values(records, effective(asked.line), self.wanted)

    def key(self, sha: str) -> str:
        """Over code, data and what of the line decides the weights, without building anything."""
        if sha not in self._keys:
            asked = self._question(sha)
            self._keys[sha] = "" if isinstance(asked, str) else _train_key(asked)
        return self._keys[sha]

    def train(self, sha: str, seeds: Sequence[int]) -> str:
        """Raises what leaves a run open: no room, a store that is away, Ctrl-C."""
        asked = self._question(sha)
        if isinstance(asked, str):
            return asked
        problem = ""
        shares = asked.line.project.task is not None
        for first, count in _consecutive(seeds) if shares else ((seed, 1) for seed in seeds):
            problem = problem or self._train(sha, first, count)
        return problem

    def _train(self, sha: str, seed: int, count: int) -> str:
        """Seeds that follow each other share a gang; a program of the user trains one at a time."""
        numbers = {"train.stop_at": self.wanted.at, "train.seed": seed, "evaluate.seeds": count}
        given = tuple(f"{key}={value}" for key, value in numbers.items())
        try:
            run_line(
                self.desk.repo, site=replace(self.desk.site, forge={}), environ=self.desk.environ, commit=sha,
                overrides=(*given, "gate.quality=[]", 'prove.plan="off"'), again=self._was_cancelled(sha, numbers),
                target=self.target, observer=self.desk.observer,
            )  # fmt: skip
        except NonFiniteError:
            return ""  # it diverged: its record says so, and that is an answer
        except GangUnreachable:
            raise  # the gang goes on; nothing is wrong with the commit
        except (ConfigError, BuildError, TrainingError) as error:
            return str(error).splitlines()[0]
        return ""

    def _was_cancelled(self, sha: str, numbers: Mapping[str, int]) -> bool:
        """Somebody stopped this very training before: asked again it begins anew."""
        project = self._project(sha)
        records = [
            record
            for record in list_runs(self.desk.store, project=project, commit=sha)
            if all(record.inputs.values.get(key) == value for key, value in numbers.items())
        ]
        newest = max(records, key=lambda record: record.run.attempt, default=None)
        return newest is not None and newest.run.verdict in {"cancelled", "superseded"}

    def _project(self, sha: str) -> str | None:
        asked = self._question(sha)
        return None if isinstance(asked, str) else asked.line.project.name

    def _question(self, sha: str) -> RunRequest | str:
        """What the commit asks as it stands; or why it asks nothing."""
        if sha not in self._questions:
            try:
                self._questions[sha] = resolve_request(self.desk.repo, commit=sha, overrides=(), strategy=None)
            except ConfigError as error:
                self._questions[sha] = str(error).splitlines()[0]
        return self._questions[sha]


def _consecutive(seeds: Sequence[int]) -> list[tuple[int, int]]:
    """(first, how many) of each run of numbers that follow each other."""
    rows: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if rows and sum(rows[-1]) == seed:
            rows[-1] = (rows[-1][0], rows[-1][1] + 1)
        else:
            rows.append((seed, 1))
    return rows


def _train_key(asked: RunRequest) -> str:
    line, repository = asked.line, asked.repository
    try:
        code = code_layer.pack(repository, asked.tree, line.project, commit=asked.commit).data
    except ConfigError:
        return ""
    lock = repository.file(asked.tree, line.env.lock) if line.env.lock else b""
    globs = [pattern.removeprefix("repo:") for pattern in line.data.text if pattern.startswith("repo:")]
    data = [
        (entry.path, entry.blob)
        for entry in repository.entries(asked.tree)
        if any(matches(entry.path, glob) for glob in globs)
    ]
    flat: dict[str, Any] = effective(line)
    train = {key: value for key, value in flat.items() if key.startswith("train.") and key not in _TRAIN_ALIKE}
    tables = {name: getattr(line, name) for name in _TABLES}
    program = [line.project.task, line.project.command]
    return digest([sha256(code).hexdigest(), sha256(lock or b"").hexdigest(), data, train, tables, program])
