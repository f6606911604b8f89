"""What a member answers to offers: by its settings, its approvals and its budget."""

import pytest
from tests.flare.offers import LAYER, ROSTER, new_key, new_member, new_offer

from gangline.errors import ConfigError, GateError, IntegrityError, UsageError
from gangline.flare.member.approval import MOST_PENDING
from gangline.flare.offer import Offer
from gangline.storage.objects.code_layer import LayerFile, pack


def approve_all(member):
    for code in member.codes.all():
        member.codes.approve(code, by="administrator")


@pytest.mark.row("FL4")
def test_a_code_waits_until_it_is_approved(tmp_path):
    _, member = new_member(tmp_path)
    offered = new_offer(new_key())
    offer = Offer.from_json(offered[0])
    assert member.answer(*offered).state == "pending"
    with pytest.raises(IntegrityError, match="is not approved here"):
        member.begin_training(offer)
    assert member.answer(*offered[:2], None).state == "pending"
    code = member.codes.named(offer.code[:8])
    assert code.is_pending
    assert member.codes.unpack(code, tmp_path / "read") == 2
    assert (tmp_path / "read/notes/read.md").read_text() == "# What it does\n"
    member.codes.approve(code, by="administrator")
    assert member.answer(*offered).state == "accepted"
    member.begin_training(offer)
    assert member.code(offer) == LAYER


def test_the_same_code_among_other_members_waits_again(tmp_path):
    _, member = new_member(tmp_path)
    key = new_key()
    member.answer(*new_offer(key))
    approve_all(member)
    other = new_offer(key, roster=(*ROSTER, "dresden"))
    assert member.answer(*other).state == "pending"
    with pytest.raises(IntegrityError, match="is not approved here"):
        member.begin_training(Offer.from_json(other[0]))


def test_a_layer_that_was_changed_on_the_disk_does_not_run(tmp_path):
    kit, member = new_member(tmp_path)
    offered = new_offer(new_key())
    member.answer(*offered)
    approve_all(member)
    other = pack([LayerFile("model.py", b"import os\n")])
    next(kit.own.glob("codes/*/layer.zip")).write_bytes(other)
    with pytest.raises(IntegrityError, match="its file was changed"):
        member.begin_training(Offer.from_json(offered[0]))


def test_an_offer_of_another_signature_code_or_size_is_refused(tmp_path):
    _, member = new_member(tmp_path)
    data, signature, layer = new_offer(new_key())
    other = new_offer(new_key(), run="r-2")[1]
    for offered in (
        (data, other, layer),
        (data, signature, layer + b"\0"),
        (data + b" ", signature, layer),
        (data, signature, None),
    ):
        answer = member.answer(*offered)
        assert (answer.state, answer.reason) == ("refused", "code")
    assert not list(member.codes.all())


def test_a_member_that_is_not_on_the_roster_refuses(tmp_path):
    _, member = new_member(tmp_path)
    answer = member.answer(*new_offer(new_key(), roster=("bremen", "celle")))
    assert (answer.state, answer.reason) == ("refused", "code")
    assert "wanted aachen on the roster" in answer.message


def test_a_program_that_is_no_task_is_refused(tmp_path):
    _, member = new_member(tmp_path)
    answer = member.answer(*new_offer(new_key(), layer_task=None))
    assert (answer.state, answer.reason) == ("refused", "code")


def test_no_more_than_twenty_codes_wait(tmp_path):
    _, member = new_member(tmp_path)
    key = new_key()
    for number in range(MOST_PENDING):
        layer = pack([LayerFile("model.py", f"# {number}\n".encode())])
        assert member.answer(*new_offer(key, layer=layer)).state == "pending"
    answer = member.answer(*new_offer(key))
    assert (answer.state, answer.reason) == ("refused", "code")
    approve_all(member)
    assert member.answer(*new_offer(key)).state == "pending"


def test_the_whole_key_of_a_signer_counts_and_not_its_id(tmp_path):
    key, other = new_key(), new_key()
    kit, member = new_member(tmp_path, more=f'approve = "signed"\nsigners = ["{key.key_id}"]\n')
    folder = kit.own / "keys"
    folder.mkdir()
    with pytest.raises(ConfigError, match="put its public PEM at"):
        member.answer(*new_offer(key))
    (folder / f"{key.key_id}.pub").write_bytes(key.public.pem)
    assert member.answer(*new_offer(key)).state == "accepted"
    layer = pack([LayerFile("model.py", b"# another\n")])
    assert member.answer(*new_offer(other, layer=layer)).state == "pending"


@pytest.mark.row("FL5")
def test_over_budget_is_refused_before_any_step(tmp_path):
    _, member = new_member(tmp_path, epsilon=8.0)
    key = new_key()
    first, second, third = (new_offer(key, run=f"r-{n}", epsilon=3.0, clip_grad=1.0) for n in range(3))
    member.answer(*first)
    approve_all(member)
    for offered in (first, second):
        assert member.answer(*offered).state == "accepted"
        member.begin_training(Offer.from_json(offered[0]))
    answer = member.answer(*third)
    assert (answer.state, answer.reason) == ("refused", "budget")
    assert "found 2 left of 8" in answer.message
    with pytest.raises(GateError):
        member.begin_training(Offer.from_json(third[0]))
    assert member.ledger.spent() == 6.0


def test_a_private_member_refuses_runs_without_epsilon(tmp_path):
    _, member = new_member(tmp_path, epsilon=8.0, more="private = true\n")
    answer = member.answer(*new_offer(new_key()))
    assert (answer.state, answer.reason) == ("refused", "budget")


def test_another_plan_of_the_same_run_pays_for_itself(tmp_path):
    _, member = new_member(tmp_path, epsilon=8.0)
    key = new_key()
    first, second = (new_offer(key, epsilon=3.0, clip_grad=1.0, local_steps=n) for n in (1, 2))
    member.answer(*first)
    approve_all(member)
    for offered in (first, second):
        member.begin_training(Offer.from_json(offered[0]))
    assert member.ledger.spent() == 6.0


@pytest.mark.parametrize("change", ["file", "folder"])
def test_settings_that_others_may_write_are_refused(tmp_path, change):
    kit, member = new_member(tmp_path)
    (kit.settings if change == "file" else kit.own).chmod(0o777)
    with pytest.raises(ConfigError, match="its administrator alone"):
        member.settings()
    with pytest.raises(ConfigError):
        member.answer(*new_offer(new_key()))


def test_every_problem_of_the_settings_comes_at_once(tmp_path):
    kit, member = new_member(tmp_path)
    kit.settings.write_text('data = "cohort"\nepsilon = -1.0\nleast_sum = 2\napprove = "signed"\ncolour = 1\n')
    with pytest.raises(ConfigError) as caught:
        member.settings()
    assert all(f": {key}: wanted" in str(caught.value) for key in ("data", "epsilon", "least_sum", "signers", "colour"))


def test_a_name_that_no_code_or_several_have_is_refused(tmp_path):
    _, member = new_member(tmp_path)
    member.answer(*new_offer(new_key()))
    for prefix in ("zz", ""):
        with pytest.raises(UsageError, match="wanted one code, found 0"):
            member.codes.named(prefix)
