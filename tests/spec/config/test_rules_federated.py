"""Each rule of a federation, in the line and in the site, with the key that it names."""

from dataclasses import replace
from pathlib import Path

import pytest

from gangline.spec.config.line import (
    DataTable,
    EvaluateTable,
    Line,
    ProjectTable,
    ProveTable,
    TrainTable,
)
from gangline.spec.config.load import line_digest, load_line
from gangline.spec.config.rules_federated import federated_rules, federated_table_rules, federation_rules
from gangline.spec.config.site_tables import FederationTable
from gangline.spec.config.structure import bound_problems
from gangline.spec.federated import FederatedTable, SimulatedMembers
from gangline.spec.plan import Compression, Recovery, StartCheckpoint

TABLE = FederatedTable(local_steps=5, quorum=3)
TRAIN = TrainTable(steps=100, global_batch=8)
GOOD = Line(project=ProjectTable(name="digits", task="model:Task"), train=TRAIN, federated=TABLE)
SITE = FederationTable(kit="/srv/server", admin="secret:file:/srv/admin", members=("bonn", "leipzig"))
ON_CLUSTER = replace(
    SITE, kit="secret:k8s:gangline-kit/server.tar", admin="secret:k8s:gangline-kit-lead/admin.tar",
    image="registry.example/gangline/federation@sha256:" + "f" * 64,
)  # fmt: skip


def problems(line=GOOD, **changes):
    table = replace(TABLE, **changes)
    own = [*bound_problems(table, "federated"), *federated_table_rules(table)]
    return [*own, *federated_rules(replace(line, federated=table))]


def keys(line=GOOD, **changes):
    return [problem.key for problem in problems(line, **changes)]


def test_good_tables_have_no_problem():
    assert keys() == []
    assert keys(secure_sum=True, clip_norm=1.0, most_samples=10) == []
    assert keys(epsilon=4.0, clip_grad=1.0, server="adam", merge="median") == []
    assert keys(replace(GOOD, data=DataTable(text=("repo:a.txt",))), evaluate="coordinator") == []
    assert list(federated_rules(replace(GOOD, federated=None))) == []


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("local_steps", {"local_steps": 0}),
        ("local_steps", {"local_steps": 7}),
        ("quorum", {"quorum": 1}),
        ("quorum", {"quorum": 2, "secure_sum": True, "clip_norm": 1.0}),
        ("quorum", {"quorum": 2, "merge": "trimmed"}),
        ("round_seconds", {"round_seconds": 0}),
        ("server_lr", {"server_lr": 0.0}),
        ("server_momentum", {"server_momentum": 1.0}),
        ("server_momentum", {"server_momentum": 0.9, "server": "adam"}),
        ("prox", {"prox": -0.1}),
        ("clip_norm", {"clip_norm": 0.0}),
        ("clip_norm", {"secure_sum": True}),
        ("merge", {"secure_sum": True, "clip_norm": 1.0, "merge": "median"}),
        ("most_samples", {"most_samples": 0}),
        ("most_samples", {"most_samples": 5, "merge": "median"}),
        ("epsilon", {"epsilon": 0.0, "clip_grad": 1.0}),
        ("clip_grad", {"epsilon": 1.0}),
        ("clip_grad", {"clip_grad": 1.0}),
        ("clip_grad", {"epsilon": 1.0, "clip_grad": -1.0}),
        ("delta", {"delta": 1.0}),
        ("spare_rounds", {"spare_rounds": -1}),
        ("evaluate", {"evaluate": "coordinator"}),
        ("simulate.members", {"simulate": SimulatedMembers(members=1)}),
        ("simulate.members", {"simulate": SimulatedMembers(members=2), "secure_sum": True, "clip_norm": 1.0}),
        ("simulate.split", {"simulate": SimulatedMembers(split="dirichlet:0")}),
        ("simulate.split", {"simulate": SimulatedMembers(split="by hand")}),
    ],
)
def test_each_rule_of_the_table_names_its_key(key, changes):
    assert keys(**changes) == [f"federated.{key}"]


def test_the_two_nearest_divisors_are_named():
    [problem] = problems(local_steps=30)
    assert "25 or 50 works" in str(problem)


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("train.strategy", {"strategy": "fsdp"}),
        ("train.recovery.mode", {"recovery": Recovery(mode="live")}),
        ("train.recovery.non_finite", {"recovery": Recovery(non_finite="skip")}),
        ("train.precision", {"precision": "fp16"}),
        ("train.compile", {"compile": True}),
        ("train.compression.kind", {"compression": Compression(kind="bf16")}),
        ("train.start.checkpoint", {"start": StartCheckpoint(checkpoint="runs/a")}),
        ("train.stop_at", {"stop_at": 5}),
        ("train.ranks", {"ranks": (1, 2)}),
    ],
)
def test_what_a_member_cannot_do_is_refused(key, changes):
    assert keys(replace(GOOD, train=replace(TRAIN, **changes))) == [key]


def test_other_tables_that_do_not_go_with_it():
    assert keys(replace(GOOD, project=ProjectTable(name="digits", command=("python", "a.py")))) == ["federated"]
    assert keys(replace(GOOD, evaluate=EvaluateTable(every_steps=1))) == ["evaluate.every_steps"]
    assert keys(replace(GOOD, prove=ProveTable(replay_steps=1))) == ["prove.replay_steps"]
    assert keys(replace(GOOD, optimizer={"rule": "muon"})) == ["optimizer.rule"]
    clipped = replace(GOOD, train=replace(TRAIN, clip_norm=1.0))
    assert keys(clipped) == []
    assert keys(clipped, epsilon=1.0, clip_grad=1.0) == ["train.clip_norm"]


def test_the_example_has_no_problem():
    line = load_line(Path(__file__).parents[3] / "examples" / "federated-digits")
    assert (line.federated.local_steps, line.federated.simulate.members) == (15, 5)


def test_all_problems_come_together():
    assert len(problems(local_steps=0, quorum=0, prox=-1.0, epsilon=-1.0, delta=2.0)) == 6


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("federation.admin", {"admin": None}),
        ("federation.admin", {"admin": "secret:env:ADMIN"}),
        ("federation.admin", {"admin": "/srv/admin"}),
        ("federation.members", {"members": ("bonn",)}),
        ("federation.members", {"members": ("bonn", "leipzig", "bonn")}),
        ("federation.members[1]", {"members": ("bonn", "a b")}),
        ("federation.kit", {"kit": None, "members": ()}),
    ],
)
def test_each_rule_of_a_site_names_its_key(key, changes):
    assert [each.key for each in federation_rules(replace(SITE, **changes))] == [key]


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("federation.kit", {"kit": "secret:env:KIT"}),
        ("federation.kit", {"kit": "secret:k8s:store/server.tar"}),
        ("federation.kit", {"kit": "secret:k8s:gangline-kits/server.tar"}),
        ("federation.admin", {"admin": None}),
        ("federation.admin", {"admin": "secret:file:/srv/admin"}),
        ("federation.image", {"image": None}),
        ("federation.image", {"image": "registry.example/federation:latest"}),
        ("federation.service", {"service": "8002"}),
        ("federation.port", {"port": 443}),
        ("federation.port", {"port": 29_500}),
    ],
)
def test_each_rule_of_a_coordinator_on_a_cluster_names_its_key(key, changes):
    assert [each.key for each in federation_rules(replace(ON_CLUSTER, **changes))] == [key]


def test_a_site_without_a_federation_is_complete():
    assert list(federation_rules(ON_CLUSTER)) == []
    assert list(federation_rules(FederationTable())) == []
    assert list(federation_rules(SITE)) == []


def test_lines_without_a_federation_keep_the_digest_that_they_had():
    assert line_digest(replace(GOOD, federated=None)) == DIGEST_BEFORE


DIGEST_BEFORE = "9a3bd9f57082eeba2200580d2d5763c909d37c08c0ee7447437dfc6977dc705c"
