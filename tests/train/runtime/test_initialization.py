"""First weights: a function of the seed, however the model is built, never silently another one."""

import pytest
import torch
from torch import nn

from gangline.errors import ConfigError
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.runtime.initialization import Initializer
from gangline.train.task import ParallelHints

CPU = torch.device("cpu")


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.norm = nn.BatchNorm1d(4)


class OwnInit(Plain):
    def __init__(self):
        super().__init__()
        for layer in self.layers:
            nn.init.constant_(layer.weight, 0.5)


class Tied(Plain):
    def __init__(self):
        super().__init__()
        self.layers[2].weight = self.layers[0].weight


class Table(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("angles", torch.arange(5.0).cos(), persistent=False)


class Scaled(nn.Linear):
    """Can be asked again, for all but its table."""

    def __init__(self):
        super().__init__(4, 4)
        self.register_buffer("scale", torch.full((4,), 0.25))


class TableWithin(Plain):
    def __init__(self):
        super().__init__()
        self.layers[1] = Scaled()


class Reads(Plain):
    def __init__(self):
        super().__init__()
        self.size = int(self.first.weight.detach().abs().sum().item() * 0 + 7)


def weights(make, seed, *, blocks_last=False):
    source = Initializer.build(make, seed=seed)
    units = [*find_blocks(source.model, ParallelHints()), ("", source.model)]
    for name, unit in units:
        source.unit(unit, name, CPU)
    return source.model


@pytest.mark.parametrize("make", [Plain, OwnInit, Tied, Table, TableWithin, Reads])
def test_seed_decides_and_nothing_stays_on_the_meta_device(make):
    one, same, other = (weights(make, seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), same.state_dict().values(), strict=True))
    assert not torch.equal(one.first.weight, other.first.weight)
    assert {each.device.type for each in (*one.parameters(), *one.buffers())} == {"cpu"}


def test_constructor_that_sets_its_own_weights_is_obeyed():
    assert all(torch.equal(layer.weight, torch.full((4, 4), 0.5)) for layer in weights(OwnInit, 1).layers)


def test_tied_weights_stay_tied():
    model = weights(Tied, 1)
    assert model.layers[2].weight is model.layers[0].weight


def test_computed_buffers_keep_their_values():
    assert torch.equal(weights(Table, 1).angles, torch.arange(5.0).cos())


def test_values_that_no_reset_gives_again_are_kept():
    """Memory that nobody filled would pass for them, mostly as zeros."""
    assert torch.equal(weights(TableWithin, 1).layers[1].scale, torch.full((4,), 0.25))


def test_a_meta_module_whose_reset_leaves_something_out_is_refused_by_name():
    with torch.device("meta"):
        model = Scaled()
    with pytest.raises(ConfigError, match=r"Scaled was built on the meta device, and .* gives \['scale'\] no values"):
        Initializer(model, seed=1).unit(model, "", CPU)


def test_block_does_not_depend_on_the_blocks_before_it():
    source = Initializer.build(Plain, seed=1)
    last = source.model.layers[2]
    source.unit(last, "layers.2", CPU)
    assert torch.equal(last.weight, weights(Plain, 1).layers[2].weight)


def test_caller_s_random_stream_is_left_alone():
    before = torch.get_rng_state()
    weights(Plain, 1)
    assert torch.equal(before, torch.get_rng_state())


def test_meta_module_without_reset_is_refused_by_name():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3, device="meta"))

    with pytest.raises(ConfigError, match="Bare was built on the meta device"):
        Initializer(Bare(), seed=1).unit(Bare(), "", CPU)


def test_blocks_that_are_not_there_are_refused_with_the_names_that_are():
    with pytest.raises(ConfigError, match=r"'blocks.\*' matches no module; .*'first', 'layers', 'norm'"):
        find_blocks(Plain(), ParallelHints(blocks="blocks.*"))


def pretrained(load):
    torch.manual_seed(5)
    kept = Plain().state_dict()

    def make():
        model = Plain()
        load(model, kept)
        return model

    return make, kept


def replace_parameters(model, kept):
    for name in dict(model.named_parameters()):
        (module, _, own), each = name.rpartition("."), kept[name]
        setattr(model.get_submodule(module), own, nn.Parameter(each.clone()))


@pytest.mark.parametrize(
    "load",
    [
        lambda model, kept: model.load_state_dict(kept),
        lambda model, kept: model.load_state_dict(kept, assign=True),
        replace_parameters,
    ],
    ids=["copied", "assigned", "replaced"],
)
def test_weights_that_were_loaded_are_those_that_are_trained(load):
    make, kept = pretrained(load)
    found = weights(make, 1).state_dict()
    assert all(torch.equal(found[name], each) for name, each in kept.items())


def test_a_pretrained_model_of_transformers_keeps_weights_and_ties(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra gangline[transformers] is not installed")
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path)
    found = weights(lambda: transformers.GPT2LMHeadModel.from_pretrained(tmp_path), 1)
    assert found.lm_head.weight is found.transformer.wte.weight
    assert all(torch.equal(found.state_dict()[name], each) for name, each in model.state_dict().items())
