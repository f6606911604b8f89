"""Learning rates, against torch's own schedulers where it has one."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.spec.plan import Schedule
from gangline.train.loop.learning_rate import check_function, rate_function, rate_ratio

kinds = st.sampled_from(["constant", "linear", "cosine"])


@given(kind=kinds, steps=st.integers(1, 200), warmup=st.integers(0, 50), final=st.floats(0, 1), data=st.data())
def test_ratio_rises_in_the_warm_up_and_never_after(kind, steps, warmup, final, data):
    schedule = Schedule(kind=kind, warmup_steps=min(warmup, steps), final_ratio=final)
    ratios = [rate_ratio(schedule, step, steps=steps) for step in range(1, steps + 1)]
    peak = max(0, schedule.warmup_steps - 1)
    assert ratios[:peak] == sorted(ratios[:peak])
    assert all(a >= b - 1e-12 for a, b in zip(ratios[peak:], ratios[peak + 1 :], strict=False))
    assert all(0 <= ratio <= 1 for ratio in ratios)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_last_step_has_the_final_ratio(kind):
    assert rate_ratio(Schedule(kind=kind, warmup_steps=3, final_ratio=0.2), 40, steps=40) == pytest.approx(0.2)


def test_cosine_is_that_of_torch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30, eta_min=0.1)
    for step in range(1, 31):
        optimizer.step()
        theirs.step()
        ratio = rate_ratio(Schedule(kind="cosine", final_ratio=0.1), step, steps=30)
        assert ratio == pytest.approx(theirs.get_last_lr()[0])


@pytest.fixture
def function(monkeypatch, tmp_path):
    """Name of a schedule in a module of its own."""

    def make(body):
        module = f"rates_{tmp_path.name}"
        (tmp_path / f"{module}.py").write_text(body)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, module, raising=False)
        return f"{module}:rate"

    return make


def test_a_function_of_ones_own_gives_the_ratio(function):
    name = function("def rate(step, steps):\n    return step / steps\n")
    check_function(name, steps=100_000)
    assert rate_function(Schedule(kind=name))(25, 100) == 0.25


def test_numbers_of_numpy_are_numbers(function):
    name = function("import numpy\ndef rate(step, steps):\n    return numpy.float32(0.5)\n")
    assert rate_function(Schedule(kind=name))(1, 1) == float(np.float32(0.5))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("x = 1", "has no function 'rate'"),
        ("rate = 3", "has no function 'rate'"),
        ("def rate(step, steps): return 1 / (steps - step)", "ZeroDivisionError"),
        ("def rate(step): return 1", "TypeError"),
        ("def rate(step, steps): return float('nan')", "finite ratio"),
        ("def rate(step, steps): return float('inf') if step == steps else 1", r"rate\(50, 50\): wanted a finite"),
        ("def rate(step, steps): return -0.1", "of 0 or more, found -0.1"),
        ("def rate(step, steps): return None", "found None"),
        ("calls = []\ndef rate(step, steps): calls.append(1); return len(calls)", "found 1 and then 100"),
    ],
)
def test_a_function_that_is_none_is_refused_before_anything_trains(function, body, reason):
    with pytest.raises(ConfigError, match=reason):
        check_function(function(body + "\n"), steps=50)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="no module 'nowhere_at_all' in the code layer"):
        check_function("nowhere_at_all:rate", steps=1)


def test_a_module_that_misses_another_one_says_so_itself(function):
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        check_function(function("import nowhere_at_all\n"), steps=1)
