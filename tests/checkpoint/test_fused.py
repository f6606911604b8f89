"""A checkpoint of a fused model opened by the split one, and back: the next updates have the same bits."""

from dataclasses import replace

import pytest
import torch
from tests.checkpoint.fused_models import FUSED, MATRIX_RULES, Training, trained_on
from tests.train.parallel.compress.ranks import on_ranks

from gangline.errors import ConfigError, IntegrityError

OTHER = {"fused": "split", "split": "fused"}


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    assert not [name for name in wanted if not torch.equal(found[name], wanted[name])]


@pytest.mark.parametrize("form", OTHER)
@pytest.mark.parametrize("rule", MATRIX_RULES)
def test_the_other_form_continues_with_the_same_bits(tmp_path, rule, form):
    wanted = trained_on(tmp_path, form, "whole", rule, True)
    assert_equal(trained_on(tmp_path, OTHER[form], "whole", rule, False), wanted)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "form", "before", "after"),
    [
        ("muon", "fused", "whole", "rows"), ("shampoo", "split", "rows", "whole"), ("soap", "fused", "columns", "rows"),
        ("soap", "split", "rows", "columns"), ("none", "fused", "rows", "columns"),
        ("muon", "split", "columns", "whole"), ("soap", "fused", "whole", "stages"),
        ("muon", "split", "stages", "rows"),
    ],
)  # fmt: skip
def test_on_two_ranks_with_another_layout_too(tmp_path, rule, form, before, after):
    first, second = on_ranks(2, trained_on, tmp_path, form, before, rule, True)
    wanted = first | second
    for rank, found in enumerate(on_ranks(2, trained_on, tmp_path, OTHER[form], after, rule, False)):
        own = f"layers.{rank}." if after == "stages" else ""
        assert_equal(found, {name: each for name, each in wanted.items() if name.startswith(own)})


def test_model_that_has_another_name_or_state_is_a_wrong_rule_and_changes_nothing(tmp_path):
    fused = Training("fused", "whole", "muon")
    fused.train(1)
    fused.save(tmp_path, step=1)
    other_name = (*FUSED[:2], replace(FUSED[2], parts=("layers.*.matrix_{}.weight",)))
    for optimizer, rules, message in (
        ("muon", FUSED[:2], "6 names differ; model/layers.0.expert_0.weight"),
        ("muon", other_name, "6 names differ; model/layers.0.expert_0.weight"),
        ("shampoo", FUSED, "layers.0.expert_0.weight/exp_avg, .* only in the model or optimizer"),
    ):
        split = Training("split", "whole", optimizer, seed=9)
        before = split.weights()
        with pytest.raises(ConfigError, match=f"with the rules of fused parameters .*{message}"):
            split.load(tmp_path, rules)
        assert_equal(split.weights(), before)
    with pytest.raises(IntegrityError, match="only in the model"):
        Training("split", "whole", "muon").load(tmp_path, ())


def test_parts_that_made_other_numbers_of_steps_are_not_joined(tmp_path):
    split = Training("split", "whole", "none")
    split.train(1)
    split.optimizer.state[split.model.get_parameter("layers.1.wk.bias")]["step"] += 1
    split.save(tmp_path, step=1)
    with pytest.raises(ConfigError, match=r"one state, found {.*'optim/layers\.1\.wk\.bias/step': 2\.0"):
        Training("fused", "whole", "none").load(tmp_path)


def test_weights_alone_are_opened_whatever_the_optimizer_was(tmp_path):
    fused = Training("fused", "whole", "soap")
    fused.train(1)
    fused.save(tmp_path, step=1)
    split = Training("split", "whole", "none", seed=9)
    split.optimizer = None
    loaded = split.load(tmp_path)
    assert_equal(split.weights(), fused.weights())
    assert "layers.1.gate.weight, layers.1.up.weight <- layers.1.fc1.weight (gate_up_interleaved)" in loaded.converted
