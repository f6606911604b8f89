"""Learning rates, against torch's own schedulers where it has one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.plan import Schedule
from gangline.train.loop.schedule import rate_ratio

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
