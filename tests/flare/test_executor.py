"""A member's executor: model code runs only behind an approval and a payment."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.flare.offers import new_key, new_member, new_offer

from gangline.errors import GateError, IntegrityError
from gangline.federated.protocol import Contribution, RoundAnswers, RoundCall
from gangline.flare.member.approval import ADMINISTRATOR
from gangline.flare.offer import Offer
from gangline.flare.wire import call_payload

executor = pytest.importorskip("gangline.flare.executor", reason="nvflare is not installed")
WEIGHTS = {"w": np.zeros(2, np.float32)}
PRIVATE = {"epsilon": 4.0, "clip_grad": 1.0, "steps": 2, "spare_rounds": 1}


@pytest.fixture
def ran(monkeypatch):
    """What a member's rank was asked, and what the ledger said then."""
    asked = []

    class Rank:
        def __init__(self, *_, **__):
            pass

        def ask(self, call, *, trainings, is_stopped):
            del is_stopped
            asked.append((trainings, Rank.member.ledger.spent(), Rank.member.trainings(Rank.offer)))
            answer = Contribution(members=("aachen",), weight=1.0, change=call.weights, loss=0.5)
            return RoundAnswers(contributions=(answer,))

        def close(self):
            pass

    monkeypatch.setattr(executor, "LocalGang", Rank)
    return Rank, asked


def answer(found, kit, member, offered, number):
    call = RoundCall(number=number, attempt=1, trains=True, weights=WEIGHTS, seconds=5.0)
    payload = {"offer": offered[0], "signature": offered[1]} | call_payload(call)
    return found._answer_call(member, kit, payload, SimpleNamespace(triggered=False))


def test_a_training_is_paid_for_before_its_rank_is_asked_and_none_is_asked_beyond_the_budget(tmp_path, ran):
    kit, member = new_member(tmp_path, epsilon=8.0)
    offered, (rank, asked), found = new_offer(new_key(), **PRIVATE), ran, executor.MemberExecutor()
    rank.member, rank.offer = member, Offer.from_json(offered[0])
    member.answer(*offered)
    with pytest.raises(IntegrityError, match="is not approved here"):
        answer(found, kit, member, offered, 1)
    assert asked == []
    member.codes.approve(rank.offer, by=ADMINISTRATOR)
    for number in (1, 2):
        answer(found, kit, member, offered, number)
    assert asked == [(0, 4.0, 1), (1, 4.0, 2)], "trainings before, epsilon and trainings paid for when the rank begins"
    with pytest.raises(GateError, match="covers 2 trainings"):
        answer(found, kit, member, offered, 3)
    assert len(asked) == 2
