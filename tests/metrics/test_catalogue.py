"""Every series is declared, in base units, with labels that cannot grow."""

from dataclasses import replace

import pytest

from gangline.errors import GanglineError
from gangline.metrics.catalogue import CATALOGUE, PREFIX, Series, check_catalogue
from gangline.metrics.labels import (
    COUNTED,
    EXITS,
    MAX_RANKS,
    MAX_SERIES_PER_RUN,
    SERIES_OF_STAGE,
    STATISTICS,
    values_of,
)
from gangline.spec.record import STAGES


def most_series(owner, ranks=1):
    """Series that carry one value of the label `owner` (`run`, `project`), with all other labels in use."""
    return sum(most(each, ranks) for each in CATALOGUE.values() if owner in each.labels)


def most(series, ranks):
    if "rank" in series.labels:
        return ranks if ranks <= MAX_RANKS else len(STATISTICS)
    count = series.lines
    for label in series.labels:
        values = values_of(series.name.removeprefix(PREFIX), label)
        count *= COUNTED.get(label, 1) if values is None else len(values)
    return count


def test_the_catalogue_keeps_its_rules():
    assert check_catalogue() == ()


@pytest.mark.row("M4")
@pytest.mark.parametrize("ranks", [1, 2, 64, 255, 256, 257, 16_384])
def test_a_run_of_any_size_stays_below_the_cap_with_every_label_in_use(ranks):
    assert most_series("run", ranks) < MAX_SERIES_PER_RUN


def test_the_cap_grows_by_the_series_of_one_more_stage():
    of_stages = sum(most(each, 1) for each in CATALOGUE.values() if {"run", "stage"} <= set(each.labels))
    assert of_stages == SERIES_OF_STAGE * len(STAGES)


@pytest.mark.row("M4")
def test_a_project_stays_below_the_cap_with_every_label_in_use():
    assert most_series("project") < MAX_SERIES_PER_RUN


def test_every_exit_code_of_an_error_is_a_value_of_its_label():
    def below(cls):
        yield cls
        for each in cls.__subclasses__():
            yield from below(each)

    ours = [cls for cls in below(GanglineError) if cls.__module__ == "gangline.errors"]
    assert {str(cls.exit_code) for cls in ours} == set(EXITS) - {"137", "143", "other"}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"name": "gangline_Train"}, "lower-case words"),
        ({"name": "train_step"}, "lower-case words"),
        ({"name": "gangline_train_total"}, "counters end in _total"),
        ({"kind": "counter"}, "counters end in _total"),
        ({"kind": "histogram", "buckets": (2.0, 1.0)}, "rising buckets"),
        ({"labels": ("run", "user")}, "have no known values"),
        ({"labels": ("run", "branch")}, "only gangline_run_info"),
        ({"labels": ("run", "state")}, "not declared for this series"),
        ({"help": "no sentence"}, "a sentence of help"),
    ],
)
def test_a_declaration_that_breaks_a_rule_is_named(broken, said):
    series = Series("gangline_train_step", "gauge", ("run",), "rank 0", "Last step.")
    (problem,) = [each for each in check_catalogue({"x": replace(series, **broken)}) if said in each]
    assert problem.startswith(broken.get("name", "gangline_train_step"))


def test_every_series_is_documented_by_one_sentence_of_its_own():
    helps = [each.help for each in CATALOGUE.values()]
    assert len(set(helps)) == len(helps)
