"""A search that lies in a store as its driver leaves it: journal, limits, answer; no gang has run."""

from dataclasses import replace

from tests.report.records import passed

from gangline.search.searches import search_prefix
from gangline.search.study import ENDED, FAILED, PRUNED, SearchStudy
from gangline.spec.measurements import Band
from gangline.spec.search import SearchAnswer, SearchLimits, SearchRequest

LR = "optimizer.elementwise.lr"


def store_confirmation(store, request, run, value):
    """The record of a run on fresh seeds, as the answer is compared with it."""
    record = passed()
    metric = replace(record.metrics["eval_loss"], value=value, better=request.better[0])
    band = Band(center=value, half=0.024, n=3, origin=run)
    record = replace(
        record, run=replace(record.run, id=run, project=request.project),
        commit=replace(record.commit, sha=request.commit), metrics={request.metrics[0]: replace(metric, band=band)},
    )  # fmt: skip
    store.put(f"{record.prefix}/record.json", record.to_json())


def store_search(store, request: SearchRequest, *, verdict="BETTER", trials=6):
    """Write the search; trial 1 is pruned, trial 2 fails, the others end with a value each."""
    prefix = search_prefix(request.project, request.id)
    store.put(f"{prefix}/search.json", request.to_json())
    store.put(f"{prefix}/limits.json", SearchLimits(trials=trials, parallel=1, budget_hours=1.0).to_json())
    study = SearchStudy(store, prefix, request, create=True)
    for number in range(trials):
        trial = study.ask()
        study.note(number, cost={"steps": request.steps, "hours": 0.25})
        if number == 1 and request.rungs:
            study.judge(number, request.rungs[0], 9.0)
            study.note(number, reason=f"pruned at step {request.rungs[0]}")
            study.tell(number, PRUNED)
        elif number == 2:
            study.note(number, reason="exit 30: its program raised")
            study.tell(number, FAILED)
        else:
            study.tell(number, ENDED, [2.0 + abs(trial.settings[LR] - 0.004), *([0.5] * (len(request.metrics) - 1))])
    study.write("ending", "trials")
    best = min((each for each in study.trials() if each.values), key=lambda each: each.values[0])
    if verdict:
        answer = SearchAnswer(
            trial=best.number, settings=best.settings, verdict=verdict, metric=request.metrics[0],
            runs=("bytegpt-9f31c2a0-winner", "bytegpt-9f31c2a0-freshb"), winner=2.1, base=2.4, band_percent=1.0,
            reason=f"{request.metrics[0]} outside the band",
        )  # fmt: skip
        store.put(f"{prefix}/answer.json", answer.to_json())
        for run, value in zip(answer.runs, ({"BETTER": 2.1, "WORSE": 2.7}.get(verdict, 2.4), 2.4), strict=True):
            store_confirmation(store, request, run, value)
    return replace(best)
