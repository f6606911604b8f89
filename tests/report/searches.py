"""Searches as drivers leave them, built by hand: answered, of two metrics, of a population, empty, hostile."""

from dataclasses import replace
from random import Random

from tests.report import records

from gangline.spec.search import Dimension, SearchAnswer, SearchLimits, SearchRequest, SearchView, Trial

LR, BATCH, RULE = "optimizer.elementwise.lr", "train.global_batch", "optimizer.elementwise.rule"
ID = "s-9f31c2a0-m4k7"
RUNGS = (200, 600, 1800)


def request(**changes):
    made = {
        "id": ID, "project": "bytegpt", "commit": records.BASE_SHA, "branch": "main",
        "subject": "Train on the sources themselves", "base": records.BASE_RUN,
        "space": {
            LR: Dimension(low=1e-4, high=1e-1, log=True), BATCH: Dimension(choices=(16, 32, 64)),
            RULE: Dimension(choices=("adamw", "sgd")),
        },
        "metrics": ("eval_loss",), "better": ("lower",), "measured_by": "loss", "sampler": "tpe", "pruner": "halving",
        "seed": 1, "steps": 5400, "rungs": RUNGS, "resource": "gpu", "created": "2026-03-02T09:14:05Z",
    }  # fmt: skip
    return SearchRequest(**made | changes)


def limits(**changes):
    return SearchLimits(**{"trials": 40, "parallel": 8, "budget_hours": 24.0} | changes)


def trials(count=40, *, metrics=1):
    """Trials of chance: two in five are pruned, one fails, the last two are on their way."""
    draw = Random(7)
    made = []
    for number in range(count):
        settings = {LR: float(f"{10 ** draw.uniform(-4, -1):.6g}"), BATCH: draw.choice((16, 32, 64)),
                    RULE: draw.choice(("adamw", "sgd"))}  # fmt: skip
        value = 2.3 + (abs(settings[LR] - 4e-3) * 8) + draw.uniform(0, 0.08)
        rung = RUNGS[number % 3]
        state = {5: "failed", count - 1: "running", count - 2: "waiting"}.get(
            number, "pruned" if number % 5 in (1, 3) else "ended"
        )
        ended = state == "ended"
        made.append(Trial(
            number=number, state=state, settings=settings, run=f"bytegpt-9f31c2a0-t{number:05}",
            values=(value, *(draw.random() for _ in range(metrics - 1))) if ended else (),
            at_rungs={step: value + 400 / step for step in RUNGS if step <= (5400 if ended else rung)}
            if state not in ("waiting", "failed") else {},
            step=5400 if ended else 0 if state == "waiting" else rung,
            device_hours=0.0 if state == "waiting" else 0.5 if ended else 0.1,
            reason={"pruned": f"pruned at step {rung:,}", "failed": "exit 31: loss is not finite", "waiting":
                    "Kueue, 8 GPUs of team-a ahead"}.get(state, ""),
            taken=number == 2,
        ))  # fmt: skip
    return tuple(made)


def _best(made):
    return min((each for each in made if each.values), key=lambda each: each.values[0]).number


def answered():
    made = trials()
    best = _best(made)
    return SearchView(
        request=request(), limits=limits(), trials=made, best=best, spent_hours=12.4, spent_money=31.2,
        importance={LR: 0.81, BATCH: 0.13, RULE: 0.06}, importance_by="fANOVA", ending="trials", base_values=(2.371,),
        answer=SearchAnswer(
            trial=best, settings=made[best].settings, verdict="BETTER", metric="eval_loss",
            runs=("bytegpt-9f31c2a0-winner", "bytegpt-9f31c2a0-freshb"), winner=2.321, base=2.371, band_percent=0.6,
            reason="eval_loss outside the band",
        ),
    )  # fmt: skip


def front():
    """Two metrics, still open."""
    made = trials(30, metrics=2)
    ended = [each for each in made if each.values]
    best = tuple(
        each.number for each in ended
        if not any(other.values[0] < each.values[0] and other.values[1] > each.values[1] for other in ended)
    )  # fmt: skip
    asked = request(
        metrics=("eval_loss", "accuracy"), better=("lower", "higher"), sampler="nsga2", pruner="none", rungs=()
    )
    return SearchView(request=asked, limits=limits(trials=30), trials=made, best=best[0], front=best, spent_hours=5.0)


def population():
    made = [
        Trial(number=number, state="ended", settings={LR: 1e-3 * (1 + number)}, run=f"bytegpt-9f31c2a0-p{number:05}",
              values=(3.0 - number * 0.05,), step=200 * (1 + number // 4), device_hours=0.02, round=number // 4,
              parent=None if number < 4 else number - 4)
        for number in range(12)
    ]  # fmt: skip
    asked = request(pruner="population", population=4, rungs=(200, 400), steps=600, space={LR: request().space[LR]},
                    measured_by="eval_loss")  # fmt: skip
    return SearchView(request=asked, limits=limits(trials=12), trials=tuple(made), best=11, ending="budget")


def empty():
    return SearchView(request=request(resource="cpu"), limits=limits(budget_hours=None), trials=())


EVIL = "<script>window.hacked=1</script> @admin \x1b[31m`x` |  \u202e" + "y" * 300


def hostile():
    """Whatever a repository, a record or a journal can put into a search."""
    view = answered()
    made = [
        replace(each, reason=EVIL, run="x", differs=EVIL, settings={LR: each.settings[LR], RULE: EVIL, BATCH: 7})
        for each in view.trials
    ]
    made[0] = replace(made[0], values=(float("inf"),), device_hours=float("nan"), at_rungs={200: float("nan")})
    space = {**view.request.space, RULE: Dimension(choices=("adamw", EVIL))}
    asked = replace(
        view.request, subject=EVIL, branch=EVIL, overrides=(f"model.name={EVIL}",), currency=EVIL, space=space,
        metrics=(EVIL,), measured_by=EVIL,
    )  # fmt: skip
    answer = replace(view.answer, reason=EVIL, metric=EVIL, settings={RULE: EVIL})
    return replace(view, request=asked, trials=tuple(made), answer=answer, importance={EVIL: 0.5}, importance_by=EVIL)


VIEWS = {"answered": answered, "front": front, "population": population, "empty": empty, "hostile": hostile}
