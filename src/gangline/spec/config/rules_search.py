"""Rules of the table `search` of a line; whether its keys take their values only the whole line shows."""

from collections.abc import Iterator

from gangline.spec.config import grammar
from gangline.spec.config.line import TrainTable
from gangline.spec.config.problems import ConfigProblem, show
from gangline.spec.search import Dimension, SearchTable

MOST_KEYS, MOST_CHOICES = 50, 1000
_REFUSED = {
    "project": "it says which project a run belongs to and what it runs",
    "gate": "it says how a run is judged",
    "publish": "it says what becomes of a run",
    "evaluate": "it says what is measured",
    "search": "it says how a search is done",
    "trigger": "it says what starts a run",
    "plan": "it says what a run may cost",
}
"""Tables that decide how trials are judged, not how they train."""
_REFUSED_KEYS = {
    "env.base": "the default branch decides it",
    "data.holdout": "the default branch decides it, and trials are compared on the same data",
    "train.steps": "trials are compared at equal steps",
    "train.stop_at": "trials are compared at equal steps",
    "train.seed": "the best of many seeds is luck; the answer is measured on fresh ones",
    "train.start.checkpoint": "trials begin alike",
    "train.start.fused": "trials begin alike",
}


def search_rules(table: SearchTable) -> Iterator[ConfigProblem]:
    """Problems of `[search]` by itself."""
    for key, dimension in table.space.items():
        place = f'search.space."{key}"' if len(key) <= 80 else "search.space"
        yield from _key_rules(place, key)
        yield from _dimension_rules(place, dimension)
    if len(table.space) > MOST_KEYS:
        yield ConfigProblem(
            "search.space", f"at most {MOST_KEYS} keys", f"{len(table.space)}", "leave some as they are"
        )
    if table.confirm_seeds in (1, 2) or not 0 <= table.confirm_seeds <= 99:
        works = "fewer than three have no band; 0 leaves the winner unconfirmed"
        yield ConfigProblem("search.confirm_seeds", "3 to 99, or 0", show(table.confirm_seeds), works)
    yield from _metric_rules(table)


def search_line_rules(table: SearchTable, train: TrainTable) -> Iterator[ConfigProblem]:
    """Problems of `[search]` with the training that it is about."""
    if table.min_steps != "auto" and table.min_steps > train.steps:
        works = "auto is train.steps / 27"
        yield ConfigProblem("search.min_steps", f"at most train.steps = {train.steps}", show(table.min_steps), works)


def _key_rules(place: str, key: str) -> Iterator[ConfigProblem]:
    head = key.partition(".")[0]
    if not grammar.LINE_KEY.fullmatch(key):
        works = "optimizer.elementwise.lr is one"
        yield ConfigProblem(place, "a key of this line, with its tables", show(key), works)
    elif reason := _REFUSED.get(head) or _REFUSED_KEYS.get(key):
        yield ConfigProblem(place, "a key that decides how trials train", show(key), reason)


def _dimension_rules(place: str, dimension: Dimension) -> Iterator[ConfigProblem]:
    low, high, step = dimension.low, dimension.high, dimension.step
    has_range = low is not None or high is not None
    if has_range == bool(dimension.choices):
        found = "both" if has_range else "neither"
        yield ConfigProblem(place, "low and high, or choices", found, "{ low = 1e-4, high = 1e-1, log = true } works")
        return
    if dimension.choices:
        yield from _choice_rules(place, dimension)
        return
    if low is None or high is None:
        yield ConfigProblem(place, "low and high", "one of them", "write both bounds of the range")
        return
    if low >= high:
        yield ConfigProblem(place, "low below high", f"{show(low)} and {show(high)}", "low is the smaller one")
    elif dimension.log and low <= 0:
        yield ConfigProblem(f"{place}.log", "low above 0", show(low), "orders of magnitude have no zero: low = 1e-5")
    if step is not None and dimension.log:
        yield ConfigProblem(f"{place}.step", "one of log and step", "both", "leave one out")
    elif step is not None and not 0 < step <= high - low:
        yield ConfigProblem(f"{place}.step", "a distance within the range", show(step), "leave it out: any value")


def _choice_rules(place: str, dimension: Dimension) -> Iterator[ConfigProblem]:
    choices = dimension.choices
    if dimension.log or dimension.step is not None:
        yield ConfigProblem(place, "choices alone", "log or step with them", "choices have no order")
    if len(choices) < 2 or len({(type(choice), choice) for choice in choices}) < len(choices):
        yield ConfigProblem(f"{place}.choices", "two or more different values", show(choices), "leave the key out")
    if len(choices) > MOST_CHOICES:
        yield ConfigProblem(f"{place}.choices", f"at most {MOST_CHOICES}", f"{len(choices)}", "use low and high")


def _metric_rules(table: SearchTable) -> Iterator[ConfigProblem]:
    metrics = (table.metric,) if isinstance(table.metric, str) else table.metric or ()
    better = (table.better,) if isinstance(table.better, str) else table.better or ()
    for metric in metrics:
        if not grammar.NAME.fullmatch(metric):
            yield ConfigProblem("search.metric", "the name of a metric", show(metric), "eval_loss is one")
    if len(set(metrics)) < len(metrics) or len(metrics) > 4:
        yield ConfigProblem("search.metric", "one to four different metrics", show(metrics))
    if better and len(better) != max(1, len(metrics)):
        yield ConfigProblem(
            "search.better", "one direction for each metric", show(better), "leave it out: the gates say"
        )
    if table.pruner == "population" and len(metrics) > 1:
        yield ConfigProblem("search.pruner", "one metric with population", show(metrics), 'pruner = "none" works')
    continuous = [
        key
        for key, dimension in table.space.items()
        if not dimension.choices and dimension.step is None and not dimension.is_whole
    ]
    if table.sampler == "grid" and continuous:
        works = "give choices or a step, or another sampler"
        yield ConfigProblem("search.sampler", "ranges with steps for a grid", f"{show(continuous[0])} without", works)
