"""The verdict of a search: by fresh seeds alone, and by no less than chance."""

from dataclasses import replace

import pytest
from tests.report import records

from gangline.line.record.store import RecordStore
from gangline.search.answer import confirm, read_answer, winner_of
from gangline.spec.measurements import Band, Metric
from gangline.spec.search import Dimension, SearchLimits, SearchRequest, SearchView, Trial
from gangline.storage.folder.store import FolderStore

LR = "optimizer.elementwise.lr"


def view_of(trials, *, best=None, front=(), confirm_seeds=3, metrics=("eval_loss",), better=("lower",)):
    request = SearchRequest(
        id="s-9f31c2a0-m4k7", project="bytegpt", commit=records.BASE_SHA, base=records.BASE_RUN,
        overrides=("train.steps=60",), space={LR: Dimension(low=1e-4, high=1e-1, log=True)}, metrics=metrics,
        better=better, measured_by=metrics[0], sampler="tpe", pruner="halving", seed=1, steps=60,
        created="2026-03-02T09:14:05Z",
    )  # fmt: skip
    limits = SearchLimits(trials=len(trials), parallel=1, confirm_seeds=confirm_seeds)
    return SearchView(request=request, limits=limits, trials=tuple(trials), best=best, front=front)


def trial(number, *values, **fields):
    return Trial(number=number, state="ended", settings={LR: 0.01 * (number + 1)}, values=values, **fields)


class Trains:
    """Answers for runs: a base with three seeds, and a winner with the value that it is given."""

    def __init__(self, value, *, band=True, better="lower", **others):
        self.asked = []
        base = records.passed()
        metric = replace(base.metrics["eval_loss"], better=better)
        self.base = replace(base, metrics={"eval_loss": metric if band else replace(metric, band=None)})
        self.winner = replace(
            self.base,
            run=replace(base.run, id="bytegpt-9f31c2a0-winner"),
            metrics={"eval_loss": Metric(value=value, unit="nats", better=better)},
        )
        for name, (before, after) in others.items():
            told = Metric(value=before, better="higher", band=Band(center=before, half=0.01, n=3, origin=base.run.id))
            self.base.metrics[name], self.winner.metrics[name] = told, Metric(value=after, better="higher")

    def train(self, overrides):
        self.asked.append(overrides)
        return self.winner if any(LR in each for each in overrides) else self.base


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path)


TWO = (trial(0, 2.4), trial(1, 2.3))


@pytest.mark.parametrize(
    ("trainer", "verdict", "reason"),
    [
        (Trains(2.30), "BETTER", "eval_loss outside the band"),
        (Trains(2.36), "SAME", "eval_loss within the band"),
        (Trains(2.50), "WORSE", "eval_loss outside the band"),
        (Trains(2.30, band=False), "unconfirmed", "no band"),
        (Trains(2.30, better=None), "BETTER", "eval_loss outside the band"),
        (Trains(2.36, accuracy=(0.5, 0.9)), "SAME", "eval_loss within the band of the base's seeds"),
    ],
    ids=["better", "same", "worse", "no band", "no gate", "another metric is better"],
)
def test_the_verdict_is_that_of_compare_on_the_searched_metric(store, trainer, verdict, reason):
    view = view_of(TWO, best=1)
    answer = confirm(view, trainer.train, store=store)
    assert answer.verdict == verdict
    assert reason in answer.reason
    assert (answer.trial, answer.settings, answer.metric) == (1, {LR: 0.02}, "eval_loss")
    assert answer.runs == ("bytegpt-9f31c2a0-winner", records.BASE_RUN)
    for record in (trainer.base, trainer.winner):
        store.put(f"{record.prefix}/record.json", record.to_json())
    assert read_answer(store, view.request, view.trials) == answer


def test_an_answer_that_the_records_of_its_runs_do_not_give_is_unconfirmed(store):
    view, trainer = view_of(TWO, best=1), Trains(2.36)
    answer = confirm(view, trainer.train, store=store)
    assert answer.verdict == "SAME"
    key = f"searches/bytegpt/{view.request.id}/answer.json"
    store.put(key, replace(answer, verdict="BETTER").to_json())
    assert read_answer(store, view.request, view.trials).reason.endswith("there are no records of its runs")
    for record in (trainer.base, trainer.winner):
        store.put(f"{record.prefix}/record.json", record.to_json())
    read = read_answer(store, view.request, view.trials)
    assert (read.verdict, read.reason) == (
        "unconfirmed", "the stored answer is BETTER, and the records of its runs give SAME",
    )  # fmt: skip
    store.put(key, replace(answer, verdict="BETTER", settings={LR: 1.0}).to_json())
    assert read_answer(store, view.request, view.trials).verdict == "unconfirmed"
    store.put(key, replace(answer, verdict="BETTER", runs=None).to_json())
    assert read_answer(store, view.request, view.trials).verdict == "unconfirmed"


def test_a_program_that_does_not_use_its_seed_is_shown_to_be_nothing(store):
    trainer = Trains(2.0)
    metric = trainer.base.metrics["eval_loss"]
    trainer.base.metrics["eval_loss"] = replace(metric, band=replace(metric.band, half=0.002, equal=True))
    answer = confirm(view_of(TWO, best=1), trainer.train, store=store)
    assert answer.verdict == "unconfirmed"
    assert "does not use its {seed}" in answer.reason


def test_a_gate_that_tolerates_less_than_chance_makes_nothing_better(store):
    trainer = Trains(2.36)
    values = {"gate.quality": [{"metric": "eval_loss", "better": "lower", "tolerance_percent": 0.1}]}
    trainer.base = replace(trainer.base, inputs=replace(trainer.base.inputs, values=values))
    answer = confirm(view_of(TWO, best=1), trainer.train, store=store)
    assert (answer.verdict, answer.winner) == ("SAME", 2.36)
    assert answer.base == 2.369
    assert answer.band_percent == pytest.approx(1.6, abs=0.01)


def test_both_train_on_the_same_seeds_that_no_trial_had(store):
    base = records.passed()
    for run, seeds in ((base.run.id, (1, 2, 3)), ("bytegpt-9f31c2a0-trial1", (2_001, 2_002))):
        record = replace(
            base, run=replace(base.run, id=run), inputs=replace(base.inputs, seeds=seeds),
        )  # fmt: skip
        RecordStore.of(store, record).create(record)
    trainer = Trains(2.3)
    confirm(view_of((TWO[0], replace(TWO[1], run="bytegpt-9f31c2a0-trial1")), best=1), trainer.train, store=store)
    seeds = ("train.seed=3000", "evaluate.seeds=3")
    assert trainer.asked == [("train.steps=60", *seeds), ("train.steps=60", f"{LR}=0.02", *seeds)]


def test_without_seeds_nothing_is_confirmed_and_nothing_trained(store):
    trainer = Trains(2.0)
    answer = confirm(view_of(TWO, best=1, confirm_seeds=0), trainer.train, store=store)
    assert (answer.verdict, trainer.asked, answer.winner) == ("unconfirmed", [], None)
    assert "confirm_seeds = 0" in answer.reason


def test_a_search_without_a_value_has_no_answer(store):
    view = view_of([Trial(number=0, state="failed", settings={})])
    assert confirm(view, Trains(2.0).train, store=store) is None
    assert read_answer(store, view.request, view.trials) is None


def test_of_a_front_the_first_metric_decides():
    trials = (trial(0, 2.4, 0.9), trial(1, 2.3, 0.8), trial(2, 2.2, 0.1))
    view = view_of(trials, front=(0, 1), metrics=("eval_loss", "accuracy"), better=("lower", "higher"))
    assert winner_of(view).number == 1


def test_the_answer_of_a_population_says_that_it_trained_from_step_0(store):
    answer = confirm(view_of((TWO[0], replace(TWO[1], round=2)), best=1), Trains(2.3).train, store=store)
    assert "trained from step 0 with the last settings" in answer.reason
