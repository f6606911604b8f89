"""Secure sums over the wire: a coordinator sees sums, and an attempt is answered once."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.flare.offers import LAYER, ROSTER, new_key, new_plan

from gangline.errors import IntegrityError
from gangline.federated.protocol import Contribution, RoundCall
from gangline.flare.kit import CLIENT, open_kit
from gangline.flare.member.sums import MemberSums
from gangline.flare.offer import make_offer
from gangline.flare.open_round import SummedRound
from gangline.flare.wire import key_payload, masked_payload, read_sum, refused_payload

WEIGHTS = {"w": np.zeros((4, 3), np.float32), "b": np.zeros(3, np.float32)}
TABLE = {"secure_sum": True, "clip_norm": 10.0, "quorum": 3}


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """Real kits: their certificates sign keys."""
    pytest.importorskip("nvflare", reason="nvflare is not installed")
    folder = tmp_path_factory.mktemp("kits")
    participants = [{"name": "localhost", "type": "server", "org": "hub", "fed_learn_port": 8002}]
    participants += [{"name": name, "type": "client", "org": name} for name in ROSTER]
    impl = "nvflare.lighter.impl"
    builders = [
        {"path": f"{impl}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
        {"path": f"{impl}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
        {"path": f"{impl}.cert.CertBuilder"},
    ]
    project = {"api_version": 3, "name": "fed", "description": "test", "participants": participants}
    (folder / "project.yml").write_text(yaml.safe_dump(project | {"builders": builders}))
    program = str(Path(sys.executable).with_name("nvflare"))
    command = [program, "provision", "-p", "project.yml", "-w", "ws", "--force"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    found = {name: open_kit(folder / "ws/fed/prod_00" / name, CLIENT) for name in ROSTER}
    for kit in found.values():
        kit.own.mkdir()
    return found


@pytest.fixture
def offer():
    return make_offer(new_plan(**TABLE), LAYER, new_key())[0]


def call_of(number=1, attempt=1, *, trains=True):
    return RoundCall(number=number, attempt=attempt, trains=trains, weights=WEIGHTS, seconds=9.0)


def answer_of(index, *, trains=True):
    change = {name: np.full_like(each, 0.25 * (index + 1)) for name, each in WEIGHTS.items()}
    metrics = {"accuracy": (index + 1.0, 10.0)} | ({"only": (2.0, 4.0)} if index == 1 else {})
    return Contribution(
        members=(ROSTER[index],), weight=1.0, change=change if trains else None, loss=0.5 if trains else None,
        metrics=metrics,
    )  # fmt: skip


def play(kits, offer, call, *, silent=(), sums=None):
    """One round of all members; those in `silent` send a key and no vector."""
    sums = sums or {name: MemberSums(kits[name], offer, least=3) for name in ROSTER}
    opened = SummedRound(call, offer.terms.plan, ROSTER)
    for index, name in enumerate(ROSTER):
        answer = answer_of(index, trains=call.trains)
        opened.received_key(name, key_payload(sums[name].begin(call, answer), answer.metrics))
    payload = opened.payload()
    vectors = {name: sums[name].mask(*read_sum(payload)) for name in ROSTER if name not in silent}
    for name, vector in vectors.items():
        opened.received_vector(name, masked_payload(vector))
    return opened, sums, payload, vectors


def test_the_coordinator_gets_the_sum_and_no_vector_tells_anything(kits, offer):
    opened, _, _, vectors = play(kits, offer, call_of())
    [together] = opened.answers().contributions
    assert together.members == ROSTER
    assert np.allclose(together.change["w"], 0.5, atol=1e-6)
    assert together.loss == pytest.approx(0.5)
    assert together.metrics == {"accuracy": (6.0, 30.0), "only": (2.0, 4.0)}
    for vector in vectors.values():
        numbers = np.frombuffer(vector[: 4 * 15], "<i4")
        assert len(set(numbers.tolist())) == 15, "equal numbers are masked by unequal ones"


def test_a_round_that_judges_has_metrics_alone(kits, offer):
    opened, *_ = play(kits, offer, call_of(2, trains=False))
    [together] = opened.answers().contributions
    assert together.change is None
    assert together.metrics["accuracy"] == (6.0, 30.0)


@pytest.mark.row("FL1")
def test_a_vector_that_is_missing_loses_the_round(kits, offer):
    opened, *_ = play(kits, offer, call_of(3), silent=("bremen",))
    assert opened.answers().contributions == ()


@pytest.mark.row("FL3")
def test_an_attempt_is_answered_once_by_this_process_and_by_a_later_one(kits, offer):
    _, sums, payload, _ = play(kits, offer, call_of(4))
    with pytest.raises(IntegrityError):
        sums["aachen"].mask(*read_sum(payload))
    later = MemberSums(kits["aachen"], offer, least=3)
    with pytest.raises(IntegrityError, match="each attempt is begun once"):
        later.begin(call_of(4), answer_of(0))
    later.begin(call_of(4, 2), answer_of(0))
    with pytest.raises(IntegrityError, match="the sum that was begun"):
        later.mask(*read_sum(payload))


def test_a_member_without_a_key_is_in_no_sum_and_a_list_of_two_is_refused(kits, offer):
    sums = {name: MemberSums(kits[name], offer, least=3) for name in ROSTER}
    opened = SummedRound(call_of(5), offer.terms.plan, ROSTER)
    for index, name in enumerate(ROSTER[:2]):
        opened.received_key(name, key_payload(sums[name].begin(call_of(5), answer_of(index)), ["accuracy", "only"]))
    opened.received_key("celle", refused_payload("budget"))
    opened.received_key("dresden", key_payload(b"{}", []))
    assert opened.ready == ROSTER[:2]
    assert opened.answers().refused == (("celle", "budget"), ("dresden", "unknown_member"))
    with pytest.raises(IntegrityError, match="wanted at least 3 members"):
        sums["aachen"].mask(*read_sum(opened.payload()))


def test_a_second_key_a_short_vector_and_more_names_are_refused(kits, offer):
    opened, _, _, vectors = play(kits, offer, call_of(6))
    opened.received_key("aachen", key_payload(b"{}", []))
    opened.received_vector("aachen", masked_payload(vectors["aachen"]))
    opened.received_vector("bremen", masked_payload(vectors["bremen"][:-1]))
    opened.received_vector("celle", {"masked": np.zeros(3)})
    reasons = [reason for _, reason in opened.answers().refused]
    assert reasons == ["second_answer", "second_answer", "shape", "shape"]
    fresh = SummedRound(call_of(7), replace(offer.terms.plan), ROSTER)
    fresh.received_key("aachen", key_payload(b"{}", [f"m{index}" for index in range(101)]))
    assert fresh.ready == ()
