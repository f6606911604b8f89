"""Blocks that compute their activations again: the same bits, fewer bytes, the same names, whatever is around them."""

import gc

import pytest
import torch
from tests.oracles.allocator import counted
from tests.train.gang import ROOT, Gang
from tests.train.parallel.memory_plans import plan_of, sequences
from tests.train.trained import trained, weight_gap
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gangline.errors import ConfigError
from gangline.train.parallel.memory_savings import KEPT, recompute, require_blocks

POLICIES = ("full", "selective", "every_2")
DROPPING = {"width": 8, "layers": 3, "dropout": 0.3}


def reader(policy="none", **options):
    torch.manual_seed(3)
    model = sequences().Reader(**options)
    for number, block in enumerate(model.layers):
        recompute(block, number, policy)
    return model


@pytest.mark.proves("activation_checkpointing", oracle="the same run without", gate="same bits")
@pytest.mark.parametrize(
    ("strategy", "policy"),
    [
        ("ddp", "full"), ("fsdp", "selective"),
        pytest.param("ddp", "selective", marks=pytest.mark.slow),
        pytest.param("fsdp", "every_2", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_recomputing_changes_no_bit_of_the_weights_even_with_dropout(make_gang, reached, kept, strategy, policy):
    wanted, losses = kept(strategy)
    plan = plan_of(strategy, model=DROPPING, memory={"activation_checkpointing": policy})
    found, own = trained(make_gang(), plan)
    assert own == losses
    assert weight_gap(found, wanted) == 0
    reached(0.0)


@pytest.fixture(scope="module")
def kept(warm, tmp_path_factory):
    """Function of a strategy: its run that keeps all activations."""
    known = {}

    def get(strategy):
        if strategy not in known:
            home = tmp_path_factory.mktemp(strategy)
            known[strategy] = trained(
                Gang(home, warm, ROOT / "tests" / "train" / "code"), plan_of(strategy, model=DROPPING)
            )
        return known[strategy]

    return get


@pytest.mark.parametrize("policy", POLICIES)
def test_recomputing_composes_with_half_precision(policy):
    losses = []
    for chosen in ("none", policy):
        model = reader(chosen)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens()).square().sum()
        loss.backward()
        losses.append([loss.detach(), *(each.grad for each in model.parameters())])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*losses, strict=True))


@pytest.mark.parametrize(("policy", "ratio"), [("full", 0.099), ("selective", 0.756), ("every_2", 0.550)])
def test_bytes_kept_between_the_passes(policy, ratio):
    """By the allocator, of a model of ten blocks; shares of what is kept otherwise."""
    assert held(policy) / held("none") == pytest.approx(ratio, abs=0.01)


def held(policy):
    model = reader(policy, width=64, layers=10)
    model(tokens()).sum().backward()  # warm: gradients are there
    gc.collect()  # tensors of other tests, which would be counted as they go
    with counted() as bytes_:
        loss = model(tokens()).sum()
    loss.backward()
    return bytes_.held


def test_names_and_modules_stay_as_they_are():
    before = [name for name, _ in reader().named_modules()]
    recomputed = reader("full")
    assert [name for name, _ in recomputed.named_modules()] == before
    assert recomputed.state_dict().keys() == reader().state_dict().keys()


def test_every_second_block_begins_with_the_first():
    blocks = [nn.Linear(2, 2) for _ in range(5)]
    for number, block in enumerate(blocks):
        recompute(block, number, "every_2")
    assert ["forward" in vars(block) for block in blocks] == [True, False, True, False, True]


def test_selective_does_no_matrix_product_twice():
    products = {policy: num_products(policy) for policy in ("none", "selective", "full")}
    assert products["selective"] == products["none"] < products["full"]


def num_products(policy):
    model = reader(policy)
    with Products() as seen:
        model(tokens()).sum().backward()
    return seen.num


class Products(TorchDispatchMode):
    num = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.num += func.name() in KEPT
        return func(*args, **(kwargs or {}))


def tokens():
    return torch.randint(sequences().VOCABULARY, (4, 16), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("policy", POLICIES)
def test_model_without_blocks_has_nothing_to_recompute(policy):
    with pytest.raises(ConfigError, match="wanted blocks to recompute, Linear has no ModuleList"):
        require_blocks(0, policy, nn.Linear(2, 2))
    require_blocks(0, "none", nn.Linear(2, 2))
    require_blocks(1, policy, nn.Linear(2, 2))
