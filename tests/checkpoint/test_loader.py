"""Loading: the newest good one, refusals by name, nothing converted, nothing half."""

import pytest
import torch
from tests.checkpoint.small import KEY, PREFIX, Wrapped, saver, step, trained
from torch import nn

from gangline.checkpoint.loader import load
from gangline.checkpoint.state import tensor_digests
from gangline.errors import ConfigError, IntegrityError, StorageError


@pytest.fixture
def three(store):
    """Checkpoints of steps 1 to 3 and the digests of each."""
    model, optimizer = trained(steps=0)
    made, digests = saver(store), {}
    for number in (1, 2, 3):
        step(model, optimizer)
        made.save(model, optimizer, {"cursor": number}, step=number, wait=True)
        digests[number] = tensor_digests(model, optimizer)
    return store, digests


def damage(store, name, step):
    key = next(entry.key for entry in store.list(f"{PREFIX}/step-{step:08d}") if name in entry.key)
    data = store.get(key).data
    store.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    return key


def test_nothing_to_load_is_an_answer(store):
    assert load(store, PREFIX, *trained(), key=KEY, group=None) is None


def test_newest_is_opened(three):
    store, digests = three
    model, optimizer = trained(steps=0, seed=9)
    loaded = load(store, PREFIX, model, optimizer, key=KEY, group=None)
    assert (loaded.step, loaded.numbers, loaded.rank_numbers) == (3, {"cursor": 3}, None)
    assert loaded.prefix == f"{PREFIX}/step-00000003"
    assert tensor_digests(model, optimizer) == digests[3]


@pytest.mark.parametrize("name", ["manifest.json", "index.json", "state.json", "r00000-0.safetensors"])
def test_damaged_file_is_reported_by_name_and_the_older_checkpoint_opened(three, name):
    store, digests = three
    keys = [damage(store, name, 3), damage(store, name, 2)]
    refused = []
    model, optimizer = trained(steps=0, seed=9)
    loaded = load(
        store, PREFIX, model, optimizer, key=KEY, group=None, on_refused=lambda *reported: refused.append(reported)
    )
    assert (loaded.step, [file for file, _ in refused]) == (1, keys)
    assert all(reason for _, reason in refused)
    assert tensor_digests(model, optimizer) == digests[1]


def test_all_refused_is_not_a_fresh_start(three):
    store, _ = three
    keys = [damage(store, "state.json", step) for step in (3, 2, 1)]
    with pytest.raises(IntegrityError) as caught:
        load(store, PREFIX, *trained(), key=KEY, group=None)
    assert "none of 3 checkpoints" in str(caught.value)
    assert all(key in str(caught.value) for key in keys)


def test_store_that_is_away_is_not_a_refusal(three):
    class Away(Wrapped):
        def get(self, key, start=0, size=None):
            if key.endswith(".safetensors"):
                raise StorageError("connection refused; is the store up?")
            return self._store.get(key, start, size)

        read_into = None

    with pytest.raises(StorageError, match="is the store up"):
        load(Away(three[0]), PREFIX, *trained(), key=KEY, group=None)


def test_one_checkpoint_can_be_asked_for(three):
    store, digests = three
    model, optimizer = trained(steps=0)
    loaded = load(store, PREFIX, model, optimizer, key=KEY, group=None, at=f"{PREFIX}/step-00000002")
    assert (loaded.step, tensor_digests(model, optimizer)) == (2, digests[2])
    with pytest.raises(IntegrityError, match="found nothing"):
        load(store, PREFIX, model, optimizer, key=KEY, group=None, at=f"{PREFIX}/step-00000007")


def test_model_opens_without_its_optimizer(three):
    store, digests = three
    model, _ = trained(steps=0, seed=9)
    assert load(store, PREFIX, model, None, key=KEY, group=None).step == 3
    assert tensor_digests(model) == {name: each for name, each in digests[3].items() if name.startswith("model/")}


def test_optimizer_starts_fresh_from_a_checkpoint_of_the_model_alone(store):
    model, _ = trained()
    saver(store).save(model, None, {}, step=1, wait=True)
    other, optimizer = trained(steps=0, seed=9)
    load(store, PREFIX, other, optimizer, key=KEY, group=None)
    assert tensor_digests(other) == tensor_digests(model)
    assert not optimizer.state


def test_parameter_that_never_had_a_gradient_stays_without_state(store):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 1), nn.Linear(4, 1)

    def one_step(model, optimizer):
        model.used(torch.ones(4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    model = Half()
    optimizer = torch.optim.AdamW(model.parameters())
    one_step(model, optimizer)
    saver(store).save(model, optimizer, {}, step=1, wait=True)
    other = Half()
    resumed = torch.optim.AdamW(other.parameters())
    load(store, PREFIX, other, resumed, key=KEY, group=None)
    assert other.unused.weight not in resumed.state
    for each in ((model, optimizer), (other, resumed)):
        one_step(*each)
    assert tensor_digests(other, resumed) == tensor_digests(model, optimizer)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.AdamW])
def test_every_optimizer_continues_as_if_unbroken(store, make):
    model, optimizer = trained(2, optimizer=make)
    optimizer.param_groups[0]["lr"] = 0.005
    saver(store).save(model, optimizer, {}, step=2, wait=True)
    other, resumed = trained(0, seed=9, optimizer=make)
    load(store, PREFIX, other, resumed, key=KEY, group=None)
    for each in ((model, optimizer), (other, resumed)):
        torch.manual_seed(5)
        step(*each)
    assert tensor_digests(other, resumed) == tensor_digests(model, optimizer)
    assert [{**group, "params": 0} for group in resumed.param_groups] == [
        {**group, "params": 0} for group in optimizer.param_groups
    ]


def test_a_start_keeps_the_options_of_its_own_line_and_takes_the_rest(store):
    def make(parameters, lr):
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=lr, betas=(0.5, lr))

    model, optimizer = trained(2, optimizer=lambda parameters, **_: make(parameters, 0.25))
    optimizer.param_groups[0]["count"] = 7
    saver(store).save(model, optimizer, {}, step=2, wait=True)
    other, started = trained(0, seed=9, optimizer=lambda parameters, **_: make(parameters, 0.125))
    started.param_groups[0]["count"] = 0
    load(store, PREFIX, other, started, key=KEY, group=None, keeps_options=True)
    [group] = started.param_groups
    assert (group["lr"], group["weight_decay"], group["betas"], group["count"]) == (0.125, 0.125, (0.5, 0.125), 7)
    assert tensor_digests(other, started) == tensor_digests(model, optimizer)


OTHER_MODELS = {
    "another shape": (
        lambda: trained(0, width=5)[0],
        r"model/0\.bias has shape \(5,\) here and \(4,\) in the checkpoint",
    ),
    "another dtype": (trained(0)[0].double, r"is torch\.float64 here and torch\.float32 in the checkpoint"),
    "a name more": (
        lambda: nn.Sequential(*trained(0)[0], nn.Linear(1, 1)),
        r"model/2\.bias, model/2\.weight are only in the model",
    ),
    "a name less": (
        lambda: nn.Sequential(trained(0)[0][0]),
        r"model/1\.bias, model/1\.weight are only in the checkpoint",
    ),
}


@pytest.mark.parametrize(("make", "message"), OTHER_MODELS.values(), ids=OTHER_MODELS.keys())
def test_model_that_does_not_fit_is_refused_by_name(three, make, message):
    model = make()
    before = tensor_digests(model)
    with pytest.raises(IntegrityError, match=message):
        load(three[0], PREFIX, model, None, key=KEY, group=None)
    assert tensor_digests(model) == before


def test_state_that_is_not_a_tensor_is_refused_by_name(store):
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"a": 1}

        def set_extra_state(self, state):
            assert state

    with pytest.raises(ConfigError, match=r"_extra_state .* is a dict; checkpoints hold tensors"):
        saver(store).save(Odd(2, 2), None, {}, step=1, wait=True)


def test_tied_weights_open_tied(store):
    def tied(seed):
        torch.manual_seed(seed)
        model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
        model["head"].weight = model["embed"].weight
        return model, torch.optim.AdamW(model.parameters())

    def one_step(model, optimizer):
        model["head"](model["embed"](torch.arange(5))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = tied(1)
    one_step(model, optimizer)
    saver(store).save(model, optimizer, {}, step=1, wait=True)
    other, resumed = tied(2)
    load(store, PREFIX, other, resumed, key=KEY, group=None)
    assert other["head"].weight is other["embed"].weight
    for each in ((model, optimizer), (other, resumed)):
        one_step(*each)
    assert tensor_digests(other, resumed) == tensor_digests(model, optimizer)
