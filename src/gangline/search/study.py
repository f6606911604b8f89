"""Trials of one search as Optuna keeps them: who proposes, who stops, what was reported, how each ended.

Optuna is imported here and in `journal` alone. A process may be killed between any two entries of the journal: the next
one completes what it began. A trial without all of its parameters gets the ones that it would have had, for samplers
are seeded by the search and the number of the trial.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from gangline.errors import IntegrityError, NotInstalledError
from gangline.search.journal import StoreJournal
from gangline.search.space import grid_values, rounded
from gangline.spec.search import Dimension, Scalar, SearchRequest, Trial
from gangline.spec.search import TrialState as State
from gangline.storage.objects.protocol import ObjectStore

STARTUP = 5
"""Trials that the median is not judged by."""
ENDED, PRUNED, FAILED = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL
_STATES: dict[TrialState, State] = {ENDED: "ended", PRUNED: "pruned", FAILED: "failed", TrialState.WAITING: "waiting"}
_DIRECTIONS = {"lower": optuna.study.StudyDirection.MINIMIZE, "higher": optuna.study.StudyDirection.MAXIMIZE}
_NEEDS = {"gp": ("scipy", "torch"), "qmc": ("scipy",)}
_JUDGED = "judged"
"""Attribute of a trial: at each rung, whether it went on."""

optuna.logging.set_verbosity(optuna.logging.ERROR)


class SearchStudy:
    """The study of one search; open it again after every crash."""

    def __init__(self, store: ObjectStore, prefix: str, request: SearchRequest, *, create: bool = False) -> None:
        """Raises IntegrityError where the journal is not that of this search."""
        self.request = request
        directions = [_DIRECTIONS[each] for each in request.better]
        is_turned = request.measured_by != request.metrics[0] and request.better[0] == "higher"
        self._sign = -1.0 if is_turned else 1.0  # rungs are judged by a loss, which is better lower
        try:
            self._storage = JournalStorage(StoreJournal(store, f"{prefix}/journal"))
            names = [study.study_name for study in self._storage.get_all_studies()]
            if names not in ([], [request.id]):
                raise IntegrityError(f"{prefix}/journal: wanted the journal of {request.id}, found another study's")
            if not names and create:
                optuna.create_study(storage=self._storage, study_name=request.id, directions=directions)
            self._study = self._loaded() if names or create else None
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise IntegrityError(f"{prefix}/journal: wanted Optuna's log, found one that it cannot replay") from error
        if self._study is not None and self._study.directions != directions:
            raise IntegrityError(f"{prefix}/journal: wanted {', '.join(request.better)} to be better, found others")

    def _loaded(self) -> optuna.Study:
        return optuna.load_study(
            study_name=self.request.id,
            storage=self._storage,
            sampler=optuna.samplers.RandomSampler(seed=0),
            pruner=_pruner(self.request),
        )

    @property
    def attributes(self) -> dict[str, Any]:
        """What is written about the search as a whole: why it ended, whether somebody stopped it."""
        return {} if self._study is None else dict(self._study.user_attrs)

    def write(self, name: str, value: object) -> None:
        """Write an attribute of the search, unless it has this value."""
        if self._opened.user_attrs.get(name) != value:
            self._opened.set_user_attr(name, value)

    def trials(self) -> list[Trial]:
        """All trials in order, as the journal tells them."""
        return [] if self._study is None else [self._trial(trial) for trial in self._frozen()]

    def ask(self) -> Trial:
        """The next trial: one that was enqueued or lacks parameters, else a new one."""
        running = [frozen_trial for frozen_trial in self._frozen() if frozen_trial.state == TrialState.RUNNING]
        incomplete = [
            frozen_trial for frozen_trial in running if not frozen_trial.params.keys() >= self.request.space.keys()
        ]
        waiting = [frozen_trial for frozen_trial in self._frozen() if frozen_trial.state == TrialState.WAITING]
        begun = incomplete or waiting
        count = begun[0].number if begun else len(self._frozen())
        self._opened.sampler = _sampler(self.request, count)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = optuna.trial.Trial(self._opened, self._id(count)) if incomplete else self._opened.ask()
            _ = trial.relative_params  # drawn for all keys together, whichever of them are missing
            for key, dimension in sorted(self.request.space.items()):
                self._opened.sampler = _sampler(self.request, count, key)
                _suggest(trial, key, _distribution(dimension))
        return self.trial(trial.number)

    def enqueue(self, settings: dict[str, Scalar], **attributes: object) -> None:
        """Let the next `ask` give this setting; members of a population are chosen by us."""
        self._opened.enqueue_trial(settings, user_attrs=attributes)

    def trial(self, number: int) -> Trial:
        """One trial."""
        return self._trial(self._frozen()[number])

    def note(self, number: int, **attributes: object) -> None:
        """Write attributes of a trial that it does not have yet; an ended one keeps its own."""
        frozen = self._frozen()[number]
        for name, value in attributes.items():
            if not frozen.state.is_finished() and frozen.user_attrs.get(name) != value:
                self._storage.set_trial_user_attr(self._id(number), name, value)

    def attribute(self, number: int, name: str) -> Any:
        """An attribute of a trial; None where it has none."""
        return self._frozen()[number].user_attrs.get(name)

    def judge(self, number: int, step: int, value: float) -> bool:
        """Report the value at a rung, once; whether the trial goes on, which is decided once, too.

        The decision is written before the pruner writes what it remembers, so that a process which is killed between
        the two leaves both for the next one.
        """
        frozen = self._frozen()[number]
        judged: dict[str, bool] = dict(frozen.user_attrs.get(_JUDGED, {}))
        if step not in frozen.intermediate_values:
            self._storage.set_trial_intermediate_value(self._id(number), step, self._sign * value)
        if str(step) not in judged:
            pruner, frozen = self._opened.pruner, self._frozen()[number]
            judged[str(step)] = not pruner.prune(self._unwritten(), frozen)
            self._storage.set_trial_user_attr(self._id(number), _JUDGED, judged)
        if self._frozen()[number].last_step == step:  # of an earlier rung it has written what it remembers
            self._opened.pruner.prune(self._opened, self._frozen()[number])
        return judged[str(step)]

    def is_pruned(self, number: int) -> bool:
        """Whether the pruner stopped a trial and that was noted, which follows all that the pruner remembers."""
        own = self._frozen()[number].user_attrs
        return bool(own.get("reason")) and not all(own.get(_JUDGED, {}).values())

    def tell(self, number: int, state: TrialState, values: Sequence[float] | None = None) -> None:
        """The end of a trial; of one that has ended already, nothing."""
        self._opened.sampler = _sampler(self.request, number)
        try:
            self._opened.tell(number, values, state=state, skip_if_finished=True)
        except RuntimeError as error:  # a grid that is used up stops a loop that we do not have
            if "stop" not in str(error):
                raise

    def importance(self) -> tuple[dict[str, float], str]:
        """Share of each key in the differences of the first metric, and the method; empty: too few ended trials."""
        if self._study is None or len(self.request.space) < 2:
            return {}, ""
        ended = [trial for trial in self._frozen() if trial.state == ENDED]
        if len(ended) < 2 * len(self.request.space) or len({tuple(trial.values) for trial in ended}) < 2:
            return {}, ""
        evaluator, name = _importance_evaluator()
        target: Callable[[FrozenTrial], float] | None = (
            None if len(self.request.metrics) == 1 else lambda frozen: float(frozen.values[0])
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                shares = optuna.importance.get_param_importances(self._study, evaluator=evaluator, target=target)
            except (ValueError, RuntimeError):
                return {}, ""
        return {key: round(value, 4) for key, value in shares.items() if math.isfinite(value)}, name

    def front(self) -> tuple[int, ...]:
        """Numbers of the trials that no other one is better than in every metric."""
        if self._study is None or len(self.request.metrics) < 2:
            return ()
        return tuple(sorted(trial.number for trial in self._study.best_trials))

    @property
    def _opened(self) -> optuna.Study:
        assert self._study is not None, "only a study that was created is written to"
        return self._study

    def _frozen(self) -> list[FrozenTrial]:
        return self._opened.get_trials(deepcopy=False)

    def _id(self, number: int) -> int:
        study = self._storage.get_study_id_from_name(self.request.id)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)

    def _unwritten(self) -> optuna.Study:
        """The same study for a pruner, which remembers nothing in it."""
        storage: Any = _WithoutAttributes(self._storage)
        return optuna.Study(self.request.id, storage)

    def _trial(self, frozen: FrozenTrial) -> Trial:
        own, space = frozen.user_attrs, self.request.space
        state = _STATES.get(frozen.state, "running")
        cost = own.get("cost", {})
        return Trial(
            number=frozen.number,
            state=state,
            settings={key: rounded(space[key], value) for key, value in frozen.params.items() if key in space},
            run=str(own.get("run", "")),
            values=tuple(frozen.values or ()) if state == "ended" else (),
            at_rungs={step: self._sign * value for step, value in sorted(frozen.intermediate_values.items())},
            step=int(cost.get("steps", max(frozen.intermediate_values, default=0))),
            device_hours=float(cost.get("hours", 0.0)),
            money=cost.get("money"),
            reason=str(own.get("reason", "")),
            taken=bool(own.get("taken", False)),
            parent=own.get("parent"),
            round=own.get("round"),
        )


def read_only_storage(store: ObjectStore, prefix: str) -> JournalStorage:
    """The journal of a search for readers that might write into it: they are refused."""

    class ReadOnly(StoreJournal):
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            """Refuse; a search is changed by its driver alone."""
            raise PermissionError(f"{prefix}/journal is read here, not written: {len(logs)} entries refused")

    return JournalStorage(ReadOnly(store, f"{prefix}/journal"))


class _WithoutAttributes:
    """A storage in which system attributes of trials are not written."""

    def __init__(self, storage: JournalStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def set_trial_system_attr(self, *_: object) -> None:
        """The caller asks for a decision alone."""


def _importance_evaluator() -> tuple[Any, str]:
    """fANOVA where scikit-learn is installed, else PED-ANOVA."""
    if find_spec("sklearn") is None:
        return optuna.importance.PedAnovaImportanceEvaluator(), "PED-ANOVA"
    return optuna.importance.FanovaImportanceEvaluator(seed=0), "fANOVA"


def _distribution(each: Dimension) -> BaseDistribution:
    if each.choices:
        return CategoricalDistribution(each.choices)
    assert each.low is not None, "a range has bounds"
    assert each.high is not None, "a range has bounds"
    if each.is_whole:
        step = int(each.step or 1)
        high = int(each.low) + (int(each.high) - int(each.low)) // step * step
        return IntDistribution(int(each.low), high, log=each.log, step=step)
    if each.step is not None:
        values = grid_values(each)
        high_value = float(each.high) if values is None else float(values[-1])
        return FloatDistribution(float(each.low), high_value, step=float(each.step))
    return FloatDistribution(float(each.low), float(each.high), log=each.log)


def _suggest(trial: optuna.Trial, key: str, distribution: BaseDistribution) -> None:
    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(key, distribution.choices)
    elif isinstance(distribution, IntDistribution):
        trial.suggest_int(key, distribution.low, distribution.high, step=distribution.step, log=distribution.log)
    elif isinstance(distribution, FloatDistribution):
        trial.suggest_float(key, distribution.low, distribution.high, step=distribution.step, log=distribution.log)


def _sampler(request: SearchRequest, number: int, key: str = "") -> optuna.samplers.BaseSampler:
    """Who proposes trial `number`, or one key of it; of an equal journal it proposes the same.

    Raises:
        NotInstalledError: The sampler needs a package that is not installed.
    """
    seed = int.from_bytes(sha256(f"{request.seed}:{number}:{key}".encode()).digest()[:4])
    samplers = optuna.samplers
    require_packages(request.sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match request.sampler:
            case "tpe":
                return samplers.TPESampler(seed=seed, constant_liar=True)
            case "grid":
                grid = {key: grid_values(dimension) or [] for key, dimension in request.space.items()}
                return samplers.GridSampler(grid, seed=request.seed)
            case "qmc":
                return samplers.QMCSampler(seed=request.seed)
            case "gp":
                return samplers.GPSampler(seed=seed)
            case "nsga2":
                return samplers.NSGAIISampler(seed=seed, population_size=20)
    return samplers.RandomSampler(seed=seed)


def require_packages(sampler: str) -> None:
    """Raise NotInstalledError where a sampler needs a package that is not installed."""
    lacks = [name for name in _NEEDS.get(sampler, ()) if find_spec(name) is None]
    if lacks:
        works = f'pip install {" ".join(lacks)} here, or sampler = "tpe"'
        raise NotInstalledError(f"search.sampler: {sampler} needs {' and '.join(lacks)}, found none; {works}")


def _pruner(request: SearchRequest) -> optuna.pruners.BasePruner:
    pruners = optuna.pruners
    first = request.rungs[0] if request.rungs else request.steps
    if not request.rungs or len(request.metrics) > 1:
        return pruners.NopPruner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match request.pruner:
            case "halving":
                return pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=request.reduction)
            case "median":
                return pruners.MedianPruner(n_startup_trials=STARTUP)
            case "hyperband":
                most = request.steps
                return pruners.HyperbandPruner(
                    min_resource=first, max_resource=most, reduction_factor=request.reduction
                )
    return pruners.NopPruner()
