"""Plans of federations: roster, ranks for simulated members, and what is refused before anything starts."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, gpus, line

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.planner.proof import make_proof_plan
from gangline.spec.config.line import EvaluateTable
from gangline.spec.config.site_tables import FederationTable
from gangline.spec.data_source import DataSource
from gangline.spec.federated import FederatedTable, SimulatedMembers

TABLE = FederatedTable(local_steps=20, quorum=3)
REAL = replace(
    SITE, federation=FederationTable(kit="/k", admin="secret:file:/a", members=("jena", "bonn", "kiel", "lyon"))
)


def asked(members=5, *, ranks="auto", batch=16, **table):
    simulate = SimulatedMembers(members=members)
    return replace(line(ranks=ranks, batch=batch), federated=replace(TABLE, simulate=simulate, **table))


def planned(line, inventory, site=SITE):
    return choose_plan(line, site, inventory, SMALL)


def test_members_are_dealt_to_the_ranks_that_are_there():
    choice = planned(asked(), cpu(cores=4))
    assert (choice.name, choice.mesh.dp_replicate, choice.strategy) == ("fedavg-5", 2, "ddp")
    assert choice.micro_batch == 16  # the whole batch is one member's, on one rank
    assert choice.federation.roster == ("member-1", "member-2", "member-3", "member-4", "member-5")
    assert choice.reason == "5 simulated members, iid · 3.5 MB up and down a member and round · no privacy asked"
    assert [each.name for each in choice.candidates] == ["fedavg-5"]
    assert planned(asked(12), cpu()).federation.roster[0] == "member-01"


@pytest.mark.parametrize(("ranks", "members", "found"), [(1, 5, 1), (8, 3, 3), ("auto", 5, 5), (3, 5, 3)])
def test_there_are_never_more_ranks_than_members(ranks, members, found):
    choice = planned(asked(members, ranks=ranks), gpus(8))
    assert (choice.mesh.world_size, choice.procs_per_node) == (found, found)


def test_an_odd_batch_needs_no_ranks_that_divide_it():
    assert planned(asked(5, batch=7), cpu(cores=4)).mesh.world_size == 2


def test_the_plan_saves_every_round_and_has_a_second_plan():
    line = asked(server="adam", server_lr=0.1)
    plan = make_plan(line, planned(line, cpu(cores=4)), run="r", run_prefix="p", data=DataSource())
    assert (plan.name, plan.rounds, plan.checkpoint.every) == ("fedadam-5", 6, 20)
    assert make_proof_plan(plan).strategy == "fsdp"
    one = asked(ranks=1)
    alone = make_plan(one, planned(one, cpu()), run="r", run_prefix="p", data=DataSource())
    assert make_proof_plan(alone, inventory=cpu()).mesh.world_size == 2


def test_real_members_are_those_of_the_site_and_their_time_is_not_known():
    choice = planned(asked(quorum=3, secure_sum=True, clip_norm=1.0, epsilon=4.0, clip_grad=1.0), gpus(8), REAL)
    assert (choice.name, choice.mesh.world_size) == ("fedavg-4", 1)
    assert (choice.federation.roster, choice.federation.simulated) == (("bonn", "jena", "kiel", "lyon"), False)
    assert choice.forecast.step_seconds is choice.forecast.wall_seconds is None
    assert "4 members on the roster, quorum 3" in choice.reason
    assert choice.reason.endswith("secure sum of 3 or more · epsilon 4 for each member's records")


@pytest.mark.parametrize(
    ("line", "site", "message"),
    [
        (asked(quorum=6), SITE, "at most the 5 of federated.simulate.members"),
        (asked(quorum=5), REAL, "at most the 4 of federation.members"),
        (asked(6, quorum=3, secure_sum=True, clip_norm=1.0), SITE, "more than half of the 6.*; 4 works"),
        (replace(asked(), evaluate=EvaluateTable(seeds=3)), REAL, "1 with real members"),
    ],
)
def test_a_roster_that_cannot_do_what_is_asked_is_refused(line, site, message):
    with pytest.raises(ConfigError, match=message):
        planned(line, cpu(cores=4), site)


def test_seeds_of_simulated_members_learn_a_band():
    assert planned(replace(asked(), evaluate=EvaluateTable(seeds=3)), cpu(cores=4)).name == "fedavg-5"


def test_unlike_kinds_of_gpu_train_no_federation_together():
    one, other = gpus(4), gpus(4, name="a100")
    both = replace(one, others=(other,))
    assert planned(asked(8), both).mesh.world_size == 4
