"""What an older torch does not do is refused by name, with the release that does; what has another name is found."""

import pytest
from tests.train.parallel.deep import deep_plan

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.train.parallel.pipeline import build
from gangline.train.runtime.torch_compat import step_in_micro_batches


@pytest.mark.parametrize("release", [(2, 11), (2, 12)])
def test_a_pipeline_is_refused_where_stages_send_back_gradients_that_there_are_none_of(monkeypatch, release):
    plan = deep_plan(Mesh(pp=2))
    monkeypatch.setattr(build, "torch_release", lambda: release)
    with pytest.raises(
        ConfigError, match=rf"needs torch 2\.13 or newer, found 2\.{release[1]}, whose stages send back"
    ):
        build.require_pipeline(plan)
    monkeypatch.setattr(build, "torch_release", lambda: (2, 13))
    build.require_pipeline(plan)


class Stage:
    has_backward, cleared = False, 0

    def clear_runtime_states(self):
        self.cleared += 1


class Old:
    """A schedule of 2.13, whose `step` would cut micro-batches once more."""

    def __init__(self):
        self.seen = []

    def step(self, *args, target=None, losses=None, return_outputs=True, **kwargs):
        raise AssertionError("it takes whole batches")

    def _step_microbatches(self, *args):
        self.seen.append(args)


class New:
    def __init__(self):
        self.seen = []

    def step(self, *args, kwarg_mbs=None, target_mbs=None, return_outputs=True):
        self.seen.append((kwarg_mbs, target_mbs, return_outputs))


@pytest.mark.parametrize("stores", ["_stage", "_stages"])
def test_a_step_takes_micro_batches_as_they_are_before_torch_2_15_too(stores):
    inputs, batches, stages = [{"x": 0}, {"x": 1}], [{"y": 0}, {"y": 1}], [Stage(), Stage()]
    old, new = Old(), New()
    setattr(old, stores, stages if stores == "_stages" else stages[0])
    step_in_micro_batches(old, inputs, batches)
    step_in_micro_batches(new, inputs, batches)
    assert old.seen == [(None, inputs, batches, None, False)]
    assert new.seen == [(inputs, batches, False)]
    called = stages if stores == "_stages" else stages[:1]
    assert [(each.has_backward, each.cleared) for each in called] == [(True, 1)] * len(called)
