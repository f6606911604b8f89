"""A federation in a real gang: equal to a plain loop where theory says so, on any number of ranks, across kills."""

import importlib.util
from dataclasses import replace
from importlib.metadata import version

import pytest
import torch
from tests.train.gang import load_tiny, stored_model, tiny_plan

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.errors import CapacityError
from gangline.spec.federated import FederatedTable, FederationPlan, SimulatedMembers
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Job, Schedule

TABLE = FederatedTable(local_steps=2, quorum=3)
SGD = {"elementwise": {"rule": "sgd", "lr": 0.05}}
HAS_OPACUS = importlib.util.find_spec("opacus") is not None
KEY = b"k" * 32


def federated_plan(*, members=3, ranks=1, split="iid", steps=6, **changes):
    table = {name: changes.pop(name) for name in list(changes) if name in FederatedTable.__dataclass_fields__}
    roster = tuple(f"member-{number}" for number in range(1, members + 1))
    simulate = SimulatedMembers(members=members, split=split)
    return tiny_plan(
        "ddp" if ranks > 1 else "none", mesh=Mesh(dp_replicate=ranks), steps=steps, optimizer=SGD,
        federation=FederationPlan(table=replace(TABLE, simulate=simulate, **table), roster=roster, simulated=True),
        checkpoint=CheckpointPolicy(every=table.get("local_steps", 2)), **changes,
    )  # fmt: skip


def trained(make_gang, plan, **environ):
    gang = make_gang()
    assert gang.run(plan, **environ) == [0] * plan.world_size, gang.log()
    return gang


def model_of(gang):
    return stored_model(gang, gang.result().checkpoint)


def test_one_local_step_of_full_batches_is_one_step_on_the_union(make_gang):
    """37 samples of three members, weighed by samples: the mean change is the step of the weighted mean gradient."""
    plan = federated_plan(local_steps=1, steps=1, global_batch=64, micro_batch=4, most_samples=1000)
    gang = trained(make_gang, plan)
    code = load_tiny()
    found, changes = model_of(gang), {}
    # the oracle: each member's full gradient at the first weights, averaged by its samples
    first = trained(make_gang, federated_plan(local_steps=1, steps=1, server_lr=1e-30, global_batch=64))
    start = model_of(first)
    names = {"lm_head.weight": "last.weight"}
    model = code.Net(width=8)
    model.load_state_dict({names.get(name, name): each for name, each in start.items()})
    from gangline.train.roles.simulated_members import share_out

    data, task = code.Points(0, 37), code.Tiny()
    for share in share_out(data, "iid", members=3, seed=plan.seed):
        batch = {key: torch.stack([data[index][key] for index in share]) for key in data[0]}
        model.zero_grad()
        loss = task.loss(model(batch["x"]), batch)
        (loss.total / loss.weight).backward()
        for name, each in model.named_parameters():
            changes[name] = changes.get(name, 0) - 0.05 * each.grad * len(share) / 37
    for name, each in found.items():
        own = names.get(name, name)
        assert torch.allclose(each, model.state_dict()[own] + changes[own], atol=1e-6), name


def test_prox_0_is_federated_averaging_and_more_of_it_moves_less(make_gang):
    moved = {}
    for prox in (0.0, 5.0):
        gangs = [
            trained(make_gang, federated_plan(local_steps=3, steps=3, prox=prox, server_lr=lr)) for lr in (1e-30, 1.0)
        ]
        start, end = map(model_of, gangs)
        moved[prox] = torch.stack([(end[name] - start[name]).norm() for name in start]).norm().item()
    plain = model_of(trained(make_gang, federated_plan(local_steps=3, steps=3)))
    zero = model_of(trained(make_gang, federated_plan(local_steps=3, steps=3, prox=0.0)))
    assert all(torch.equal(plain[name], zero[name]) for name in plain)
    assert 0 < moved[5.0] < moved[0.0]


@pytest.mark.parametrize("options", [{}, {"server": "adam", "server_lr": 0.1}, {"merge": "median"}])
def test_ranks_change_nothing_and_the_checkpoint_is_an_ordinary_one(make_gang, options):
    one, two = (trained(make_gang, federated_plan(members=5, ranks=ranks, **options)) for ranks in (1, 2))
    assert stored_digests(one.store, one.result().checkpoint, KEY, optimizer=True) == stored_digests(
        two.store, two.result().checkpoint, KEY, optimizer=True
    )
    assert one.result().jobs == two.result().jobs
    assert one.result().final_step == 6
    rounds = one.events(event="round")
    assert [(each["round"], each["step"], each["answered"], each["members"]) for each in rounds] == [
        (1, 2, 5, 5), (2, 4, 5, 5), (3, 6, 5, 5),
    ]  # fmt: skip
    assert [step for step, _ in one.result().jobs[0].losses] == [2, 4, 6]
    assert [each["step"] for each in one.events(event="saved")] == [2, 4, 6]


def test_metrics_are_those_of_all_held_out_samples(make_gang, warm):
    from tests.train.roles.test_jobs import beside

    gang = trained(make_gang, federated_plan(evaluate="members"))
    judged = gang.result().jobs[0].metrics
    other = beside(gang, warm, "evaluate")
    job = Job(seed=1, train=False, checkpoint=gang.result().checkpoint)
    plan = federated_plan(ranks=2, role="evaluate", jobs=(job, Job(seed=2)))
    assert other.run(plan) == [0, 0], other.log()
    own, seed = other.result().jobs
    assert judged == pytest.approx(own.metrics, rel=1e-5)
    assert seed.step == 6
    assert seed.metrics != own.metrics
    here = trained(make_gang, federated_plan(evaluate="coordinator"))
    assert here.result().jobs[0].metrics == pytest.approx(own.metrics, rel=1e-5)


def test_the_checkpoint_opens_sharded(make_gang, warm):
    from tests.train.roles.test_jobs import beside

    gang = trained(make_gang, federated_plan(server="adam", server_lr=0.1))
    job = Job(seed=1, train=False, checkpoint=gang.result().checkpoint)
    plan = replace(
        federated_plan(server="adam", role="prove", jobs=(job,)), strategy="fsdp", mesh=Mesh(dp_shard=2), name="fsdp-2"
    )
    other = beside(gang, warm, "prove")
    assert other.run(plan) == [0, 0], other.log()
    digests = other.result().digests
    assert digests.total == digests.equal > 20


@pytest.mark.row("FL6")
def test_a_killed_gang_repeats_at_most_one_round_and_ends_with_the_same_bits(make_gang):
    plan = federated_plan(members=3, steps=8)
    whole = trained(make_gang, plan)
    wanted = stored_digests(whole.store, whole.result().checkpoint, KEY, optimizer=True)
    for call in (1, 7, 14):  # 6 losses a round: before the first save, in the second round, in the third
        gang = make_gang()
        assert gang.run(plan, STRIKE=f"kill:0:{call * 2}") == [137], gang.log()
        assert gang.run(plan) == [0], gang.log()
        found = stored_digests(gang.store, gang.result().checkpoint, KEY, optimizer=True)
        assert found == wanted
        numbers = [each["round"] for each in gang.events(event="round")]
        assert sorted(set(numbers)) == [1, 2, 3, 4]
        assert len(numbers) <= 5
        assert [step for step, _ in gang.result().jobs[0].losses] == [2, 4, 6, 8]
        last = gang.events(event="round")[-1]
        assert (last["attempt"], last["generation"]) == (6, 1)


def test_a_gang_that_is_asked_to_stop_saves_its_round(make_gang):
    gang, plan = make_gang(), federated_plan(steps=8)
    assert gang.run(plan, STRIKE="term:0:7") == [143], gang.log()
    steps = [each["step"] for each in gang.events(event="saved")]
    assert steps
    assert gang.run(plan) == [0], gang.log()
    assert gang.events(event="resumed")[0]["step"] == steps[-1]


def test_answers_that_are_not_finite_lose_rounds_until_no_quorum_is_expected(make_gang):
    gang = make_gang()
    assert gang.run(federated_plan(), STRIKE="poison:0:1") == [20], gang.log()
    lost = gang.events(event="round_lost")
    assert [each["attempt"] for each in lost] == [1, 2, 3, 4, 5]
    assert lost[0]["refused"] == {"not_finite": 3}
    assert "5 times in a row" in gang.events(event="done")[0]["reason"]


def test_one_wild_answer_is_refused_and_the_others_merge(make_gang):
    gang = trained(make_gang, federated_plan(members=4), STRIKE="nan:0:1")
    first = gang.events(event="round")[0]
    assert (first["answered"], first["refused"]) == (3, {"not_finite": 1})


def test_a_secure_sum_ends_where_the_plain_mean_ends(make_gang):
    options = {"members": 4, "clip_norm": 0.5, "most_samples": 10}
    plain = model_of(trained(make_gang, federated_plan(**options)))
    gang = trained(make_gang, federated_plan(ranks=2, secure_sum=True, **options))
    for name, each in model_of(gang).items():
        assert torch.allclose(each, plain[name], atol=1e-5), name
    last = gang.events(event="round")[-1]
    assert last["answered"] == 4
    assert last["bytes_up"] > sum(each.numel() for each in plain.values()) * 4 * 4
    assert gang.result().jobs[0].metrics.keys() == {"eval_loss", "error"}


@pytest.mark.row("FL3")
def test_a_lost_attempt_of_a_secure_sum_trains_on_other_samples(make_gang):
    """A restart numbers attempts on: with plain answers it trains the same, under a sum other samples."""
    ends = {}
    for secure in (False, True):
        plan = federated_plan(members=3, steps=2, clip_norm=1.0, secure_sum=secure)
        whole, again = trained(make_gang, plan), make_gang()
        assert again.run(plan, STRIKE="kill:0:12") == [137], again.log()
        assert again.run(plan) == [0], again.log()
        first, second = model_of(whole), model_of(again)
        ends[secure] = all(torch.equal(each, second[name]) for name, each in first.items())
    assert ends == {False: True, True: False}


def test_buffers_of_whole_numbers_are_not_averaged(make_gang):
    gang = trained(make_gang, federated_plan(model={"width": 8, "norm": True}, server="adam", server_lr=0.01))
    found = model_of(gang)
    assert found["norm.num_batches_tracked"].item() == 0
    assert found["norm.running_mean"].abs().max() > 0
    assert torch.allclose(found["norm.fixed"], torch.tensor([0.1]))


def test_rates_follow_the_schedule_over_the_local_steps_of_the_whole_run(make_gang):
    still = Schedule(kind="linear", final_ratio=0.0)
    gang = trained(make_gang, federated_plan(local_steps=1, steps=2, schedule=still))
    first, second = gang.metrics()
    assert first["gradient_norm"] > 0
    assert second["gradient_norm"] == 0.0  # the rate of the last local step of the run is zero


def test_merged_weights_that_are_not_finite_are_exit_31_and_are_not_saved(make_gang):
    gang = make_gang()
    wild = {"elementwise": {"rule": "sgd", "lr": 1e6}}
    plan = replace(federated_plan(local_steps=1, server_lr=3e38), optimizer=wild)
    assert gang.run(plan) == [31], gang.log()
    assert "the merged weights are not finite" in gang.log()
    assert gang.events(event="round") == gang.events(event="saved") == []


needs_opacus = pytest.mark.skipif(not HAS_OPACUS, reason="opacus is not here: pip install 'gangline[federated]'")
PRIVATE = {"members": 3, "epsilon": 6.0, "delta": 1e-3, "clip_grad": 1.0, "spare_rounds": 1}


@needs_opacus
@pytest.mark.long
def test_private_training_spends_what_the_accountant_says_and_no_more_than_was_asked(make_gang):
    from opacus.accountants import RDPAccountant

    from gangline.train.loop.private_training import RecordPrivacy

    plan = federated_plan(steps=4, **PRIVATE)
    rounds = trained(make_gang, plan).events(event="round")
    spent = [0.0, 0.0]
    for samples in (13, 12, 12):  # 37 of them
        oracle, privacy = RDPAccountant(), RecordPrivacy.of(plan, samples=samples)
        for number in range(2):
            for _ in range(2):
                oracle.step(noise_multiplier=privacy.noise, sample_rate=8 / samples)
            spent[number] = max(spent[number], oracle.get_epsilon(delta=1e-3))
    assert [each["epsilon"] for each in rounds] == pytest.approx(spent, rel=1e-6)
    assert 0 < spent[0] < spent[1] <= 6.0
    assert {each["accountant"] for each in rounds} == {f"opacus {version('opacus')}"}
    assert privacy.most_trainings == 3
    for _ in range(3):
        privacy.begin()
    with pytest.raises(CapacityError, match="covers 3 trainings"):
        privacy.begin()


@needs_opacus
@pytest.mark.long
def test_a_restart_counts_the_training_that_was_under_way_and_noise_is_not_drawn_from_the_seed(make_gang):
    gang, plan = make_gang(), federated_plan(steps=4, **PRIVATE)
    assert gang.run(plan, STRIKE="kill:0:12") == [137], gang.log()
    assert gang.run(plan) == [0], gang.log()
    whole = trained(make_gang, plan)
    assert gang.events(event="round")[-1]["epsilon"] > whole.events(event="round")[-1]["epsilon"]
    assert any(not torch.equal(each, model_of(whole)[name]) for name, each in model_of(gang).items())


@needs_opacus
@pytest.mark.long
def test_a_model_without_gradients_by_record_is_refused_by_name(make_gang):
    gang = make_gang()
    assert gang.run(federated_plan(**PRIVATE, model={"width": 8, "norm": True})) == [10], gang.log()
    assert "BatchNorm" in gang.log()
