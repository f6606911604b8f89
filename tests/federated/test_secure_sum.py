"""Secure sums: every pattern of losses, a hostile coordinator, and a transcript that shows nothing twice."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federated.certificates import certificate_of, identity_of, key_of

from gangline.errors import IntegrityError
from gangline.federated.protocol import Contribution
from gangline.federated.secure_sum import Identity, Occasion, SecureSum, add, check_keys
from gangline.federated.sum_vector import from_bytes, to_bytes, unit_of
from gangline.spec.federated import FederatedTable

NAMES = ("bonn", "jena", "kiel", "lyon", "metz")
TABLE = FederatedTable(local_steps=1, quorum=3, secure_sum=True, clip_norm=2.0, most_samples=100)
OCCASION = Occasion(run="r1", round=1, attempt=1, code="c0de", roster=NAMES)
WEIGHTS = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.float32)}
NUMBERS = 10


def answer_of(name, seed=0):
    draws = np.random.default_rng([seed, *name.encode()])
    change = {key: draws.normal(0, 0.3, each.shape).astype(np.float32) for key, each in WEIGHTS.items()}
    return Contribution(
        members=(name,), weight=float(draws.integers(1, 100)), change=change, loss=float(draws.uniform(0, 3)),
        metrics={"accuracy": (float(draws.integers(0, 50)), 50.0)},
    )  # fmt: skip


def oracle(answers):
    total = sum(each.weight for each in answers)
    return {
        name: sum(each.change[name].astype(np.float64) * each.weight for each in answers) / total for name in WEIGHTS
    }


def vector_of(answer):
    return to_bytes(answer, TABLE, roster=5)


def run(patterns, sums, occasion, seed=0, sent=None):
    """The sum of one attempt, in which each member does as its pattern says; None: the attempt is lost.

    Signed keys are added to `sent`.
    """
    keys = {name: sums[name].begin(occasion) for name, pattern in patterns.items() if pattern != "lost before key"}
    if sent is not None:
        sent += keys.values()
    vectors = {}
    for name in keys:
        if patterns[name] == "stays":
            vector = vector_of(answer_of(name, seed))
            vectors[name] = sums[name].mask(list(keys.values()), vector, num_numbers=NUMBERS)
    if not keys or vectors.keys() != keys.keys():
        return None, vectors
    total = add(list(vectors.values()), num_numbers=NUMBERS)
    return from_bytes(total, list(keys), TABLE, roster=5, weights=WEIGHTS, names=["accuracy"]), vectors


@pytest.mark.row("FL1")
def test_every_pattern_of_losses_gives_the_exact_sum_or_a_lost_attempt():
    sums = {name: SecureSum(identity_of(name), least=3) for name in NAMES}
    patterns = list(product(["stays", "lost before key", "lost before vector"], repeat=5))
    assert len(patterns) == 243
    for attempt, pattern in enumerate(patterns, start=1):
        fate, occasion = dict(zip(NAMES, pattern, strict=True)), replace(OCCASION, attempt=attempt)
        ready = [name for name in NAMES if fate[name] != "lost before key"]
        if len(ready) < 3 and "stays" in fate.values():
            with pytest.raises(IntegrityError, match=r"wanted at least 3|more than half"):
                run(fate, sums, occasion)
            continue
        found, _ = run(fate, sums, occasion)
        if "lost before vector" in pattern or not ready:
            assert found is None
            continue
        answers = [answer_of(name) for name in ready]
        assert found.members == tuple(sorted(ready))
        assert found.weight == sum(each.weight for each in answers)
        assert found.metrics["accuracy"] == (sum(each.metrics["accuracy"][0] for each in answers), 50.0 * len(ready))
        assert found.loss == pytest.approx(sum(a.loss * a.weight for a in answers) / found.weight, abs=1e-5)
        for name, expected in oracle(answers).items():
            assert np.abs(found.change[name] - expected).max() < 1e-6


def test_the_error_of_a_sum_of_a_million_numbers_is_that_of_its_units():
    draws = np.random.default_rng(1)
    changes = {name: {"a": draws.normal(0, 1e-3, 10**6).astype(np.float32)} for name in NAMES}
    answers = [Contribution(members=(name,), weight=1.0, change=each, loss=0.5) for name, each in changes.items()]
    table = replace(TABLE, most_samples=None)
    total = add([to_bytes(each, table, roster=5) for each in answers], num_numbers=10**6)
    found = from_bytes(total, NAMES, table, roster=5, weights={"a": np.zeros(10**6, np.float32)}, names=[])
    expected = np.mean([each.change["a"] for each in answers], axis=0, dtype=np.float64)
    assert np.abs(found.change["a"] - expected).max() <= unit_of(table, 5) / 2 + 1e-9


def test_a_change_is_clipped_before_it_is_masked():
    large = Contribution(members=("bonn",), weight=100.0, change={"a": np.full(4, 50.0, np.float32)}, loss=0.0)
    found = from_bytes(
        to_bytes(large, TABLE, roster=5), ["bonn"], TABLE, roster=5, weights={"a": np.zeros(4, np.float32)}, names=[]
    )
    assert np.linalg.norm(found.change["a"]) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_never_masked(value):
    wild = replace(answer_of("bonn"), change={**answer_of("bonn").change, "b": np.full(4, value, np.float32)})
    with pytest.raises(IntegrityError, match="finite"):
        vector_of(wild)
    with pytest.raises(IntegrityError, match="finite"):
        vector_of(replace(answer_of("bonn"), loss=value))


def test_one_vector_is_noise():
    sums = {name: SecureSum(identity_of(name), least=3) for name in NAMES}
    _, vectors = run(dict.fromkeys(NAMES, "stays"), sums, OCCASION)
    plain = np.frombuffer(vector_of(answer_of("bonn")), "<u4", count=NUMBERS)
    assert not np.any(plain == np.frombuffer(vectors["bonn"], "<u4", count=NUMBERS))
    four = add([each for name, each in vectors.items() if name != "bonn"], num_numbers=NUMBERS)
    partial = add([vector_of(answer_of(name)) for name in NAMES if name != "bonn"], num_numbers=NUMBERS)
    same = np.frombuffer(four, np.uint8) == np.frombuffer(partial, np.uint8)
    assert same.mean() < 0.2


CHOICES = st.sampled_from([
    "good", "twice", "absent", "other attempt", "other round", "other run", "other code", "other roster",
    "foreign root", "issued by a member", "expired", "swapped key", "another's name", "no text", "not on the roster",
])  # fmt: skip
OTHER = {
    "other attempt": {"attempt": 2}, "other round": {"round": 2}, "other run": {"run": "r2"},
    "other code": {"code": "x"}, "other roster": {"roster": NAMES[:3]},
}  # fmt: skip
ROSTER = (*NAMES, "oslo", "pisa")


def forged(name, what, keys):
    """What a hostile coordinator sends in place of the key of `name`."""
    fields, other = json.loads(keys(name, "good")), json.loads(keys("jena" if name == "bonn" else "bonn", "good"))
    match what:
        case "swapped key":
            return json.dumps(fields | {"key": other["key"]}).encode()
        case "another's name":
            return json.dumps(fields | {"certificate": other["certificate"]}).encode()
        case "no text":
            return b"\x80\x04pickled"
        case "not on the roster":
            return keys("evil", "good")
        case "twice":
            return keys(name, "good")
    return keys(name, what)


@pytest.fixture(scope="module")
def keys():
    """Signed keys by member and kind, made once: signing takes a millisecond."""
    made = {}

    def key(name, what):
        if (name, what) not in made:
            identity, occasion = identity_of(name), replace(OCCASION, roster=ROSTER)
            if what in OTHER:
                occasion = replace(occasion, **OTHER[what])
            elif what == "foreign root":
                identity = identity_of(name, root="other")
            elif what == "issued by a member":
                identity = replace_certificate(identity, certificate_of(name, "lyon"))
            elif what == "expired":
                identity = replace_certificate(identity, certificate_of(name, "root", days=-1))
            made[name, what] = SecureSum(identity, least=3).begin(occasion)
        return made[name, what]

    return key


def replace_certificate(identity, certificate):
    return Identity(certificate, identity.key, identity.root)


@pytest.mark.row("FL2", full="10,000 lists")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_lists_of_a_hostile_coordinator_are_refused_or_large_enough(keys, count):
    root, occasion = certificate_of("root", "root"), replace(OCCASION, roster=ROSTER)
    fates = {"accepted": 0, "refused": 0}

    @settings(max_examples=count, deadline=None, database=None)
    @given(st.lists(st.tuples(st.sampled_from(ROSTER), CHOICES), max_size=8), st.integers(3, 7))
    def strike(chosen, least):
        texts = []
        for name, what in chosen:
            if what != "absent":
                texts += [forged(name, what, keys)] * (2 if what == "twice" else 1)
        good = [name for name, what in chosen if what == "good"]
        others = [what for _, what in chosen if what not in ("good", "absent")]
        sound = not others and len(set(good)) == len(good) and len(good) >= max(least, 4)
        try:
            found = check_keys(texts, occasion, root, least=least)
        except IntegrityError:
            assert not sound
            fates["refused"] += 1
        else:
            assert sound
            assert sorted(found) == sorted(good)
            fates["accepted"] += 1

    strike()
    assert fates["refused"] > count // 3


FORGED = ("twice", *OTHER, "foreign root", "issued by a member", "expired", "swapped key", "another's name", "no text")


@pytest.mark.row("FL2")
@pytest.mark.parametrize("what", [*FORGED, "not on the roster"])
def test_one_forged_key_among_good_ones_spoils_the_list(keys, what):
    root, occasion = certificate_of("root", "root"), replace(OCCASION, roster=ROSTER)
    good = [keys(name, "good") for name in ROSTER[:5]]
    assert len(check_keys(good, occasion, root, least=5)) == 5
    with pytest.raises(IntegrityError):
        check_keys([*good, forged("bonn" if what == "twice" else "oslo", what, keys)], occasion, root, least=3)


@pytest.mark.row("FL2")
def test_a_list_smaller_than_this_member_wants_is_refused(keys):
    root, occasion = certificate_of("root", "root"), replace(OCCASION, roster=ROSTER)
    with pytest.raises(IntegrityError, match="at least 6 members"):
        check_keys([keys(name, "good") for name in ROSTER[:5]], occasion, root, least=6)


@pytest.mark.row("FL2")
def test_a_list_without_me_or_with_another_key_of_mine_is_not_answered(keys):
    occasion, own = replace(OCCASION, roster=ROSTER), SecureSum(identity_of("bonn"), least=3)
    mine = own.begin(occasion)
    others = [keys(name, "good") for name in ("jena", "kiel", "lyon", "metz")]
    for chosen in (others, [keys("bonn", "good"), *others]):
        with pytest.raises(IntegrityError, match="has not the key that bonn made"):
            own.mask(chosen, vector_of(answer_of("bonn")), num_numbers=NUMBERS)
    assert own.mask([mine, *others], vector_of(answer_of("bonn")), num_numbers=NUMBERS)


@pytest.mark.row("FL2")
def test_an_attempt_is_answered_once_and_begun_once(keys):
    own, occasion = SecureSum(identity_of("bonn"), least=3), replace(OCCASION, roster=ROSTER)
    chosen = [own.begin(occasion), *(keys(name, "good") for name in ("jena", "kiel", "lyon", "metz"))]
    vector = vector_of(answer_of("bonn"))
    own.mask(chosen, vector, num_numbers=NUMBERS)
    with pytest.raises(IntegrityError, match="second request"):
        own.mask(chosen, vector, num_numbers=NUMBERS)
    for earlier in (occasion, replace(occasion, round=0, attempt=9)):
        with pytest.raises(IntegrityError, match="begun once"):
            own.begin(earlier)
        with pytest.raises(IntegrityError, match="begun once"):
            SecureSum(identity_of("bonn"), least=3, begun=own.begun).begin(earlier)
    own.begin(replace(occasion, attempt=2))


def test_two_sums_of_one_roster_cannot_be_disjoint(keys):
    root, occasion = certificate_of("root", "root"), replace(OCCASION, roster=ROSTER)
    with pytest.raises(IntegrityError, match="more than half"):
        check_keys([keys(name, "good") for name in ROSTER[:3]], occasion, root, least=3)
    assert len(check_keys([keys(name, "good") for name in ROSTER[:4]], occasion, root, least=3)) == 4


def test_a_certificate_is_judged_at_the_time_that_it_is_used(keys):
    root, occasion = certificate_of("root", "root"), replace(OCCASION, roster=ROSTER)
    chosen = [keys(name, "good") for name in ROSTER]
    with pytest.raises(IntegrityError, match="not valid at"):
        check_keys(chosen, occasion, root, least=3, at=datetime.now(UTC) + timedelta(days=365))


@pytest.mark.row("FL3", full="1,000 rounds")
@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_key_no_mask_and_no_vector_is_seen_twice_in_a_transcript_with_kills(rounds):
    sums, draws, seen = {name: SecureSum(identity_of(name), least=3) for name in NAMES}, np.random.default_rng(7), set()
    sent: list[bytes] = []
    sums_made = 0
    for number in range(1, rounds + 1):
        occasion = replace(OCCASION, round=number, attempt=int(draws.integers(1, 4)))
        fate = {name: draws.choice(["stays", "stays", "stays", "lost before vector"]) for name in NAMES}
        if draws.random() < 0.2:  # a member's process dies, and its successor knows what was begun
            sums["kiel"] = SecureSum(identity_of("kiel"), least=3, begun=sums["kiel"].begun)
        found, vectors = run(fate, sums, occasion, seed=number, sent=sent)
        sums_made += found is not None
        words = [bytes(each[:16]) for each in vectors.values()]
        assert seen.isdisjoint(words)
        assert len(set(words)) == len(words)
        seen.update(words)
    assert sums_made > rounds // 10
    assert len({json.loads(each)["key"] for each in sent}) == len(sent) == 5 * rounds


@pytest.mark.parametrize("what", ["certificate", "key", "kind"])
def test_an_identity_of_other_files_is_refused(what):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    certificate, key = certificate_of("bonn").public_bytes(pem), key_of("bonn").private_bytes(pem, form, plain)
    root = certificate_of("root", "root").public_bytes(pem)
    assert Identity.of_pem(certificate, key, root).name == "bonn"
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, form, plain)
    broken = {
        "certificate": (b"", key, root),
        "key": (certificate, b"no key", root),
        "kind": (certificate, other, root),
    }
    with pytest.raises(IntegrityError):
        Identity.of_pem(*broken[what])
