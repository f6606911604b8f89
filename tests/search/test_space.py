"""Space of a search: values as overrides, keys and bounds that a line refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.line import repositories

from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.search.space import grid_size, override, require_space, rounded
from gangline.spec.config.load import load_line_text
from gangline.spec.search import Dimension

LEAST = """
[project]
name = "demo"
task = "model:Demo"
[train]
steps = 100
global_batch = 16
"""
scalars = st.one_of(
    st.booleans(), st.integers(-(10**9), 10**9), st.text(st.characters(codec="utf-8")),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip


@given(scalars)
def test_a_value_is_read_back_as_it_was_set(value):
    """Whatever a choice is: the override of `--set` is data, never more than one value."""
    line = load_line_text(LEAST, file="line.toml", overrides=[override("model.x", value)])
    assert line.model["x"] == value
    assert type(line.model["x"]) is type(value)


@given(st.floats(1e-12, 1e12), st.floats(1.0001, 1e6))
def test_a_rounded_value_stays_inside(low, factor):
    dimension = Dimension(low=low, high=low * factor)
    for value in (low, low * factor, low * (1 + factor) / 2):
        assert low <= rounded(dimension, value) <= low * factor
        assert rounded(dimension, value) == pytest.approx(value, rel=2e-5)


def test_a_grid_has_as_many_settings_as_its_values_make():
    steps, choices = Dimension(low=0.0, high=1.0, step=0.25), Dimension(choices=(1, 2, 3))
    assert grid_size({"a": steps, "b": choices, "c": Dimension(low=1, high=4)}) == 5 * 3 * 4
    assert grid_size({"a": Dimension(low=0.0, high=1.0)}) is None


def problems(search, **changes):
    with pytest.raises(ConfigError) as caught:
        load_line_text(LEAST + search, file="line.toml", **changes)
    return str(caught.value)


def space(text, key="optimizer.elementwise.lr"):
    return f'[search.space]\n"{key}" = {text}\n'


@pytest.mark.parametrize(
    ("search", "wanted"),
    [
        (space("{ low = 1e-4, high = 1e-1, choices = [1] }"), "low and high, or choices, found both"),
        (space("{}"), "low and high, or choices, found neither"),
        (space("{ low = 1 }"), "wanted low and high"),
        (space("{ low = 0.0, high = 1.0, log = true }"), "wanted low above 0"),
        (space("{ low = -1.0, high = 1.0, log = true }"), "wanted low above 0"),
        (space("{ low = 2.0, high = 1.0 }"), "wanted low below high"),
        (space("{ low = 1.0, high = inf }"), "a finite number"),
        (space("{ low = nan, high = 1.0 }"), "a finite number"),
        (space("{ low = 1.0, high = 2.0, step = 5.0 }"), "a distance within the range"),
        (space("{ low = 1.0, high = 2.0, step = 0.5, log = true }"), "one of log and step"),
        (space("{ choices = [1] }"), "two or more different values"),
        (space("{ choices = [1, 1] }"), "two or more different values"),
        (space("{ choices = [1, nan] }"), "a finite number"),
        (space("{ choices = [1, 2], log = true }"), "choices alone"),
        (space("{ choices = [1, [2]] }"), "search.space"),
        (space("{ low = 1, high = 2 }", "project.name"), "decides how trials train"),
        (space("{ choices = [1, 2] }", "gate.parity"), "says how a run is judged"),
        (space("{ choices = [1, 2] }", "publish.smoke"), "says what becomes"),
        (space("{ choices = [1, 2] }", "evaluate.seeds"), "says what is measured"),
        (space("{ choices = [1, 2] }", "search.trials"), "says how a search is done"),
        (space("{ choices = [1, 2] }", "trigger.forks"), "says what starts"),
        (space("{ choices = [0.1, 0.2] }", "data.holdout"), "the default branch decides it"),
        (space("{ choices = [1, 2] }", "train.seed"), "fresh"),
        (space("{ choices = [1, 2] }", "train.steps"), "equal steps"),
        (space("{ choices = [1, 2] }", "lr"), "a key of this line"),
        (space("{ choices = [1, 2] }", "a.b; rm -rf /"), "a key of this line"),
        (space("{ low = 1, high = 2 }", "a." + "x" * 300 + "\\u001b[31m!"), "a key of this line"),
        ("[search]\ntrials = 1001\n", "1 to 1000"),
        ("[search]\ntrials = 0\n", "1 to 1000"),
        ("[search]\nconfirm_seeds = 2\n", "have no band"),
        ("[search]\nmin_steps = 101\n", "at most train.steps = 100"),
        ("[search]\nreduction = 1\n", "at least 2"),
        ("[search]\npopulation = 3\n", "4 to 50"),
        ('[search]\nsampler = "cmaes"\n', "search.sampler"),
        ("[search]\nbudget_gpu_hours = -1.0\n", "above 0"),
        ('[search]\nmetric = ["a", "a"]\n', "different metrics"),
        ('[search]\nmetric = ["a", "b"]\nbetter = "lower"\n', "one direction for each"),
        ('[search]\nmetric = ["a", "b"]\npruner = "population"\n', "one metric with population"),
        ('[search]\nsampler = "grid"\n' + space("{ low = 0.1, high = 1.0 }"), "ranges with steps for a grid"),
    ],
)  # fmt: skip
def test_a_search_that_cannot_be_done_is_refused_with_its_key(search, wanted):
    message = problems(search)
    assert wanted in message
    assert "\x1b" not in message


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository.at(repositories.make_repository(tmp_path_factory.mktemp("space") / "repo"))


@pytest.mark.parametrize(
    ("key", "dimension", "wanted"),
    [
        ("train.no_such", Dimension(choices=(1, 2)), "a known key"),
        ("train.clip_norm", Dimension(low=-1.0, high=1.0), "a norm above 0"),
        ("train.global_batch", Dimension(choices=(8, 0)), "at least 1"),
        ("train.precision", Dimension(choices=("fp32", "fp64")), "train.precision"),
        ("train.global_batch", Dimension(low=1.0, high=2.0), "an integer"),
    ],
)
def test_a_bound_that_its_key_refuses_is_named_with_the_reason(repository, key, dimension, wanted):
    with pytest.raises(ConfigError) as caught:
        require_space(repository, repository.commit("HEAD"), {key: dimension})
    assert f'search.space."{key}"' in str(caught.value)
    assert wanted in str(caught.value)


def test_a_space_that_the_line_takes_is_taken(repository):
    space = {"train.clip_norm": Dimension(low=0.1, high=1.0), "train.global_batch": Dimension(choices=(8, 16))}
    require_space(repository, repository.commit("HEAD"), space)
