"""What every declaration keeps to, and how many series a run can have at most."""

import re
from collections.abc import Mapping

from gangline.metrics.catalogue import CATALOGUE, PREFIX, Series
from gangline.metrics.labels import CLOSED, COUNTED, CUT, MAX_RANKS, STATISTICS, values_of

_NAME = re.compile(r"gangline_[a-z]+(_[a-z]+)*")


def check_catalogue(catalogue: Mapping[str, Series] = CATALOGUE) -> tuple[str, ...]:
    """Sentences on series that break the rules of the catalogue; none: it is sound."""
    return tuple(problem for each in catalogue.values() for problem in _problems(each))


def most_series(owner: str, ranks: int = 1) -> int:
    """Series that carry one value of the label `owner` (`run`, `project`), with all other labels in use."""
    return sum(_most(each, ranks) for each in CATALOGUE.values() if owner in each.labels)


def _most(series: Series, ranks: int) -> int:
    if "rank" in series.labels:
        return ranks if ranks <= MAX_RANKS else len(STATISTICS)
    count = series.lines
    for label in series.labels:
        values = values_of(series.name.removeprefix(PREFIX), label)
        count *= COUNTED.get(label, 1) if values is None else len(values)
    return count


def _problems(series: Series) -> list[str]:
    return [*_problems_of_name(series), *_problems_of_labels(series)]


def _problems_of_name(series: Series) -> list[str]:
    found = []
    last = series.name.rpartition("_")[2]
    if not _NAME.fullmatch(series.name):
        found.append(f"{series.name}: wanted gangline_ and lower-case words, found something else")
    if (series.kind == "counter") != (last == "total"):
        found.append(f"{series.name}: counters end in _total and nothing else does")
    if series.kind == "histogram" and (last != "seconds" or list(series.buckets) != sorted(set(series.buckets))):
        found.append(f"{series.name}: a histogram ends in _seconds and has rising buckets")
    if not series.help.endswith("."):
        found.append(f"{series.name}: wanted a sentence of help, found {series.help!r}")
    return found


def _problems_of_labels(series: Series) -> list[str]:
    found = []
    short = series.name.removeprefix(PREFIX)
    if unknown := [label for label in series.labels if label not in {*CLOSED, *COUNTED, *CUT}]:
        found.append(f"{series.name}: labels {unknown} have no known values")
    if empty := [label for label in series.labels if values_of(short, label) == ()]:
        found.append(f"{series.name}: the values of {empty} are not declared for this series")
    if series.name != PREFIX + "run_info" and set(series.labels) & set(CUT):
        found.append(f"{series.name}: text stands on gangline_run_info alone")
    return found
