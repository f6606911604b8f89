"""Only what is whole, signed and passed is promoted; of many promoters one wins."""

import json
import threading
from dataclasses import replace

import pytest
from tests.registry.passed_run import LostAnswer, git

from gangline.errors import GateError, IntegrityError, StorageError, UsageError
from gangline.line.record.store import read_record
from gangline.registry.promote import promote, verify_alias
from gangline.registry.versions import Alias, Version, read_alias, read_version
from gangline.signing import keys
from gangline.spec.config.line import PublishTable
from gangline.spec.config.site import SignTable, Site
from gangline.spec.measurements import Drill
from gangline.spec.record import Record


def point(workspace, version=1, alias="production", **arguments):
    wanted = {
        "store": workspace.store, "repo": workspace.repo, "site": workspace.site, "environ": workspace.environ,
        "because": "it is better", "read_record": read_record, "who": "ada@host",
    }  # fmt: skip
    return promote("bytegpt", version, alias, **wanted | arguments)


def second_version(workspace):
    workspace.line = replace(workspace.line, publish=PublishTable(smoke=False))
    other = workspace.place(workspace.attempt(2))
    return workspace.publish(other).version


def test_an_alias_says_who_promoted_what_and_why_under_a_signature(published):
    workspace, _ = published
    alias = point(workspace)
    assert (alias.version, alias.generation, alias.previous, alias.who) == (1, 1, None, "ada@host")
    assert read_alias(workspace.store, "bytegpt", "production") == alias
    trusted = keys.trusted_keys(workspace.site, workspace.environ)
    assert "it is better" in verify_alias(alias, trusted)
    for forged in (replace(alias, because="no reason"), replace(alias, version=2), replace(alias, who="eve")):
        with pytest.raises(IntegrityError):
            verify_alias(forged, trusted)


def test_going_back_is_promoting_an_older_version(published):
    workspace, _ = published
    point(workspace)
    assert second_version(workspace) == 2
    assert [(a.version, a.generation, a.previous) for a in (point(workspace, 2), point(workspace, 1))] == [
        (2, 2, 1),
        (1, 3, 2),
    ]


def test_promoting_what_is_there_writes_nothing(published):
    workspace, _ = published
    first = point(workspace)
    before = workspace.store.get(first.key).etag
    assert point(workspace, because="once more") == first
    assert workspace.store.get(first.key).etag == before


def test_of_sixteen_promoters_one_wins_each_generation(published):
    workspace, _ = published
    second_version(workspace)
    wins, conflicts, lock, barrier = [], [], threading.Lock(), threading.Barrier(16)

    def race(number):
        barrier.wait()
        try:
            alias = point(workspace, version=number % 2 + 1, who=f"worker-{number}")
        except GateError as error:
            with lock:
                conflicts.append(str(error))
        else:
            with lock:
                wins.append(alias)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) + len(conflicts) == 16
    written = {(alias.generation, alias.nonce) for alias in wins}
    assert len({generation for generation, _ in written}) == len(written), "two promotions share a generation"
    assert sorted(generation for generation, _ in written) == list(range(1, len(written) + 1))
    assert all("another promotion came first" in each for each in conflicts)
    last = read_alias(workspace.store, "bytegpt", "production")
    assert last == max(wins, key=lambda alias: alias.generation)


def test_an_answer_that_was_lost_is_settled_by_reading_back(published):
    workspace, _ = published

    alias = point(workspace, store=LostAnswer(workspace.store, "/aliases/"))
    assert read_alias(workspace.store, "bytegpt", "production") == alias


def strike_file(name, change):
    def strike(workspace, answer):
        file = next(each for each in answer.files if each.path == name)
        workspace.store.put(file.key, change(workspace.store.get(file.key).data))

    return strike


def strike_version(change):
    def strike(workspace, answer):
        plain = json.loads(workspace.store.get(answer.key).data)
        change(plain)
        workspace.store.put(answer.key, Version.from_json(json.dumps(plain)).to_json())

    return strike


def strike_record(change, *, sealed=True):
    """Change the record, as a driver that has the key or as somebody who has none."""

    def strike(workspace, answer):
        place = f"{workspace.record.prefix}/record.json"
        changed = change(Record.from_json(workspace.store.get(place).data))
        workspace.store.put(place, changed.to_json())
        if sealed:
            workspace.place(changed)

    return strike


def flip(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def drop(name):
    def change(plain):
        plain["files"] = [each for each in plain["files"] if each["path"] != name]

    return strike_version(change)


STRIKES = {
    "flipped weights": (strike_file("model.safetensors", flip), "wanted digest"),
    "shorter weights": (strike_file("model.safetensors", lambda data: data[:-1]), "bytes, found"),
    "signature of nobody": (strike_file("model.sig", flip), "wanted digest"),
    "no card": (drop("card.md"), r"lacks card\.md"),
    "no bill of materials": (drop("sbom.cdx.json"), r"lacks sbom\.cdx\.json"),
    "no provenance": (drop("provenance.json"), r"lacks provenance\.json"),
    "no signature": (drop("model.sig"), "never signed"),
    "another commit": (strike_version(lambda plain: plain.update(commit="0" * 40)), "provenance says commit"),
    "another run": (strike_version(lambda plain: plain.update(run="bytegpt-00000000-cccccc")), "provenance says run"),
    "version file changed": (strike_version(lambda plain: plain.update(metrics={})), "one of the two was changed"),
    "key in the file": (strike_version(lambda plain: plain.update(key_id="0badbeef")), "names key 0badbeef"),
    "verdict": (strike_record(lambda r: replace(r, run=replace(r.run, verdict="refused"))), "verdict refused"),
    "fork": (strike_record(lambda r: replace(r, commit=replace(r.commit, trust="fork"))), "the record was changed"),
    "another branch": (
        strike_record(lambda r: replace(r, commit=replace(r.commit, protected=False))), "the record was changed"
    ),
    "drilled": (
        strike_record(lambda r: replace(r, drills=(Drill(name="kill-rank", row="T1", result="held"),))), "a drilled run"
    ),
    "experiment": (
        strike_record(lambda r: replace(r, inputs=replace(r.inputs, overrides=("gate.quality=[]",)))), "an experiment"
    ),
    "another checkpoint": (strike_record(lambda r: replace(r, artifacts=())), "has no checkpoint"),
    "a gate, without the key": (strike_record(lambda r: replace(r, gates=()), sealed=False), "was changed after key"),
    "a verdict, without the key": (
        strike_record(lambda r: replace(r, run=replace(r.run, reason="fine")), sealed=False), "was changed after key"
    ),
    "no seal": (strike_record(lambda r: replace(r, seal=None), sealed=False), "has no seal"),
    "no record": (
        lambda workspace, answer: workspace.store.delete(f"{workspace.record.prefix}/record.json"),
        "is missing",
    ),
    "no tag": (lambda workspace, answer: git(workspace.repo, "tag", "-d", "model/bytegpt/v1"), "there is no tag"),
    "moved tag": (
        lambda workspace, answer: git(workspace.repo, "tag", "-f", "-a", "-m", "hm", "model/bytegpt/v1"),
        "one of the two was changed",
    ),
    "light tag": (
        lambda workspace, answer: git(workspace.repo, "tag", "-f", "model/bytegpt/v1"), "has no digest"
    ),
}  # fmt: skip


@pytest.mark.row("I2")
@pytest.mark.parametrize("name", STRIKES)
def test_a_version_with_one_part_missing_or_forged_is_never_promoted(published, name):
    workspace, answer = published
    strike, said = STRIKES[name]
    strike(workspace, answer)
    with pytest.raises(IntegrityError, match=said):
        point(workspace)
    assert read_alias(workspace.store, "bytegpt", "production") is None


def test_a_signature_of_a_stranger_is_never_promoted(published, tmp_path):
    workspace, _ = published
    stranger = {"XDG_CONFIG_HOME": str(tmp_path / "stranger")}
    with pytest.raises(IntegrityError, match="signature was refused"):
        point(workspace, environ=stranger)
    (keys.key_folder(stranger) / f"{workspace.key.key_id}.pub").write_bytes(workspace.key.public.pem)
    trusting = Site(sign=SignTable(identities=(workspace.key.key_id,)))
    assert point(workspace, environ=stranger, site=trusting).version == 1


def test_another_clone_promotes_by_the_remotes_tag(published, tmp_path):
    workspace, _ = published
    git(tmp_path, "clone", "--quiet", "--bare", str(workspace.repo), "origin.git")
    git(tmp_path, "clone", "--quiet", "--no-tags", "origin.git", "clone")
    assert point(workspace, repo=tmp_path / "clone").version == 1


@pytest.mark.row("S11")
def test_a_store_that_ignores_conditions_never_promotes(published):
    workspace, _ = published

    class Careless:
        url = "file:careless"

        def __getattr__(self, name):
            return getattr(workspace.store, name)

        def put_if_absent(self, key, data):
            return workspace.store.put(key, data)

        def compare_and_set(self, key, data, expected):
            return workspace.store.put(key, data)

    with pytest.raises(StorageError, match="ignores conditional writes"):
        point(workspace, store=Careless())
    assert read_alias(workspace.store, "bytegpt", "production") is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"version": 7}, r"there is no models/bytegpt/7\.json"),
        ({"because": "  "}, "wanted a reason"),
        ({"alias": "../x"}, "wanted the name of an alias"),
    ],
)
def test_a_call_that_makes_no_sense_says_what_works(published, arguments, said):
    workspace, _ = published
    with pytest.raises(UsageError, match=said):
        point(workspace, **arguments)


def test_a_version_file_under_another_number_is_refused(published):
    workspace, answer = published
    workspace.store.put("models/bytegpt/2.json", workspace.store.get(answer.key).data)
    with pytest.raises(IntegrityError, match="names itself bytegpt 1"):
        read_version(workspace.store, "bytegpt", 2)


def test_an_alias_file_that_is_damaged_is_refused(published):
    workspace, _ = published
    alias = point(workspace)
    workspace.store.put(alias.key, alias.to_json()[:-1])
    with pytest.raises(IntegrityError, match=Alias.__name__):
        point(workspace)
