"""A run that passed becomes a version once, whole or not at all."""

import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open
from tests.registry.passed_run import LostAnswer, git

from gangline.errors import GateError, IntegrityError, TrainingError
from gangline.launch.sandbox.module_runner import ModuleResult
from gangline.registry.git_tags import read_tag
from gangline.registry.publish import Published
from gangline.registry.publish_rules import NotPublished
from gangline.registry.versions import Version, list_versions, read_version, version_digest
from gangline.spec.config.line import PublishTable
from gangline.spec.data_source import DataSource
from gangline.spec.measurements import Drill
from gangline.spec.plan import Plan
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.spec.record import Gate
from gangline.spec.run_flags import UNDER_WAY
from gangline.storage.objects.blobs import get_blob, put_blob
from gangline.storage.objects.protocol import list_all


@pytest.fixture
def quick(workspace):
    """A workspace whose line asks for no smoke test."""
    workspace.line = replace(workspace.line, publish=PublishTable(smoke=False))
    return workspace


def test_a_passed_run_becomes_a_signed_tagged_version_that_answers(published):
    workspace, answer = published
    assert isinstance(answer, Published)
    assert (answer.version, answer.key) == (1, "models/bytegpt/1.json")
    assert " · answers in a fresh process, loss 5." in answer.message
    assert answer.events == ()
    names = [file.path for file in answer.files]
    assert names == [
        "card.md",
        "config.json",
        "golden.safetensors",
        "model.safetensors",
        "model.sig",
        "provenance.json",
        "sbom.cdx.json",
    ]
    for artifact in answer.artifacts:
        data = workspace.store.get(artifact.key).data
        assert (len(data), hashlib.sha256(data).hexdigest()) == (artifact.size_bytes, artifact.sha256)
    assert [each.kind for each in answer.artifacts] == [
        "card",
        "config",
        "golden",
        "model",
        "signature",
        "provenance",
        "sbom",
    ]
    version = read_version(workspace.store, "bytegpt", 1)
    assert (version.run, version.commit, version.key_id) == (
        workspace.record.run.id,
        workspace.record.commit.sha,
        workspace.key.key_id,
    )
    assert version.metrics["eval_loss"]["band"]["n"] == 3
    tag = read_tag(workspace.repo, "model/bytegpt/v1")
    assert (tag.commit, tag.digest) == (workspace.record.commit.sha, version_digest(version))
    assert answer.message.startswith(
        f"bytegpt 1: model.safetensors 120 kB, signed by key {workspace.key.key_id}, in the local"
    )


def test_the_model_of_a_task_that_makes_its_own_data_answers_too(workspace):
    store, record = workspace.store, workspace.record
    bare = replace(Plan.from_json(get_blob(store, record.plan.key)), data=DataSource())
    record = replace(record, plan=replace(record.plan, key=put_blob(store, bare.to_json())))

    class Answers:
        def run(self, job):
            assert [path for path in job.files.values() if isinstance(path, Path) and not path.exists()] == []
            return ModuleResult(exit_code=0, stdout=b'{"parameters": 8}', stderr=b"")

    answer = workspace.publish(workspace.place(record), runner=Answers())
    assert " · opens in a fresh process, 8 finite numbers" in answer.message


def test_the_weights_open_with_the_safetensors_library(published):
    workspace, answer = published
    path = workspace.files / next(file.key for file in answer.files if file.path == "model.safetensors")
    with safe_open(str(path), framework="pt") as opened:
        assert opened.metadata()["run"] == workspace.record.run.id
        assert opened.get_tensor("token.weight").shape == (256, 32)


def test_tensors_have_the_names_that_the_task_asked_for(quick):
    answer = quick.publish(names={"token.weight": "transformer.wte.weight"})
    path = quick.files / next(file.key for file in answer.files if file.path == "model.safetensors")
    with safe_open(str(path), framework="pt") as opened:
        assert opened.get_tensor("transformer.wte.weight").shape == (256, 32)
        assert "token.weight" not in set(opened.keys())


def test_the_card_escapes_what_a_commit_says(published):
    workspace, answer = published
    card = workspace.store.get(next(file.key for file in answer.files if file.path == "card.md")).data.decode()
    assert "<b>" not in card
    assert "| eval\\_loss | 2.375 nats | 2.369 ± 0.0379 (3 seeds) | lower | none |" in card
    assert workspace.record.commit.sha in card


@pytest.mark.row("P11")
def test_the_bill_of_materials_names_every_installed_package(published):
    from importlib.metadata import distributions

    workspace, answer = published
    bill = json.loads(workspace.store.get(next(file.key for file in answer.files if file.path == "sbom.cdx.json")).data)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    listed = {each["name"] for each in bill["components"]}
    assert listed == {dist.metadata["Name"].lower().replace("_", "-").replace(".", "-") for dist in distributions()}


def test_publishing_again_finds_the_version_that_is_there(published):
    workspace, answer = published
    before = workspace.store.get(answer.key)
    again = workspace.publish()
    assert (again.version, again.weights, again.files) == (answer.version, answer.weights, answer.files)
    assert workspace.store.get(answer.key) == before
    assert len(list_versions(workspace.store, "bytegpt")) == 1


def test_a_try_that_died_before_its_tag_is_finished_by_the_next(published):
    workspace, _ = published
    made = git(workspace.repo, "rev-parse", "refs/tags/model/bytegpt/v1")
    git(workspace.repo, "tag", "-d", "model/bytegpt/v1")
    workspace.publish()
    assert git(workspace.repo, "rev-parse", "refs/tags/model/bytegpt/v1") == made


def test_another_run_gets_the_next_number_and_a_tag_takes_one_too(published):
    workspace, _ = published
    workspace.line = replace(workspace.line, publish=PublishTable(smoke=False))
    other = workspace.attempt(2)
    git(workspace.repo, "tag", "-a", "-m", "taken elsewhere", "model/bytegpt/v2")
    assert workspace.publish(other).version == 3


@pytest.mark.long
def test_of_publishers_that_race_each_gets_its_own_number(quick):
    records = [quick.attempt(number) for number in range(2, 6)]
    runs = [record.run.id for record in records]
    found, barrier = [], threading.Barrier(len(runs))

    def race(record):
        barrier.wait()
        found.append(quick.publish(record).version)

    threads = [threading.Thread(target=race, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1, 2, 3, 4]
    assert {version.run for version in list_versions(quick.store, "bytegpt")} == set(runs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: replace(r, commit=replace(r.commit, branch="feature")), "branch feature is not published"),
        (lambda r: replace(r, commit=replace(r.commit, branch=None)), "no branch is checked out"),
        (lambda r: replace(r, commit=replace(r.commit, patch="blobs/sha256/00")), "the tree was dirty"),
        (lambda r: replace(r, commit=replace(r.commit, trust="fork")), "the commit comes from a fork"),
        (lambda r: replace(r, commit=replace(r.commit, protected=False)), "commit"),
        (
            lambda r: replace(r, inputs=replace(r.inputs, overrides=("train.seed=2",))),
            "it is an experiment, with train",
        ),
        (lambda r: replace(r, drills=(Drill(name="kill-rank", row="T1", result="held"),)), "a drilled run"),
        (
            lambda r: replace(r, ran=RuntimeReport(reads=(UndeclaredRead(path="/h/x", size_bytes=1, left=True),))),
            "it read what an earlier run left in the home of its branch: /h/x; with sandbox.home",
        ),
        (
            lambda r: replace(r, drills=(Drill(name="kill-rank", row="T1", result="not_struck", reason=UNDER_WAY),)),
            "a drilled run",
        ),
    ],
)
def test_a_run_that_the_line_does_not_publish_is_skipped_with_the_reason(quick, change, said):
    skipped = quick.publish(change(quick.record))
    assert isinstance(skipped, NotPublished)
    assert skipped.reason.startswith(said)
    assert list_versions(quick.store, "bytegpt") == ()


def test_a_drill_that_never_struck_keeps_nothing_from_being_published(quick):
    missed = Drill(name="kill-rank", row="T1", result="not_struck", reason="the gang ended before")
    assert quick.publish(replace(quick.record, drills=(missed,))).version == 1


def test_without_a_checkpoint_there_is_nothing_to_publish(quick):
    assert "no file to publish: the program saved none" in quick.publish(checkpoint=None).reason


@pytest.mark.row("P5")
def test_a_forks_commit_never_becomes_a_version(quick):
    forked = replace(quick.record, commit=replace(quick.record.commit, trust="fork"))
    assert "never published" in quick.publish(forked).reason
    assert not list(list_all(quick.store, f"models/{quick.record.run.project}/"))


def test_a_gate_or_proof_that_says_no_is_refused(quick):
    no = Gate(name="quality:eval_loss", verdict="no", reason="outside the band")
    with pytest.raises(GateError, match="outside the band"):
        quick.publish(replace(quick.record, gates=(*quick.record.gates, no)))
    with pytest.raises(GateError, match="52 of 53"):
        quick.publish(replace(quick.record, proof=replace(quick.record.proof, tensors_equal=52)))
    strict = replace(quick.line, gate=replace(quick.line.gate, require_base=True))
    with pytest.raises(GateError, match="no base yet"):
        quick.publish(line=strict)


def test_a_name_that_is_taken_in_git_is_refused(quick, monkeypatch):
    """Another clone of the repository had its own store and published 1 from it meanwhile."""
    monkeypatch.setattr("gangline.registry.git_tags.taken_numbers", lambda repo, model, origin: set())
    git(quick.repo, "tag", "-a", "-m", "version-digest: " + "0" * 64, "model/bytegpt/v1")
    with pytest.raises(IntegrityError, match="one of the two was changed"):
        quick.publish()


def test_a_flipped_bit_in_the_checkpoint_is_refused_before_anything_is_published(quick):
    shard = next((quick.files / quick.checkpoint).glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(IntegrityError, match=shard.name):
        quick.publish()
    assert list_versions(quick.store, "bytegpt") == ()


class Fails:
    def run(self, job):
        return ModuleResult(exit_code=1, stdout=b"", stderr=b"")


def test_a_model_that_does_not_answer_is_not_a_version(workspace):
    broken = replace(workspace.line, model={**workspace.line.model, "width": 64})
    with pytest.raises(IntegrityError, match="do not fit the model"):
        workspace.publish(line=broken)
    with pytest.raises(TrainingError, match="failed its smoke test"):
        workspace.publish(runner=Fails())
    assert list_versions(workspace.store, "bytegpt") == ()


def test_a_lost_answer_to_the_claim_is_settled_by_reading_back(quick):
    assert quick.publish(store=LostAnswer(quick.store, "models/bytegpt/1.json")).version == 1
    assert isinstance(read_version(quick.store, "bytegpt", 1), Version)


def test_a_name_that_is_taken_on_the_remote_is_refused(published, tmp_path):
    workspace, _ = published
    git(tmp_path, "clone", "--quiet", "--bare", "--no-tags", str(workspace.repo), "origin.git")
    git(tmp_path / "origin.git", "tag", "-f", "-a", "-m", "theirs", "model/bytegpt/v1", "main")
    git(workspace.repo, "remote", "add", "origin", str(tmp_path / "origin.git"))
    with pytest.raises(IntegrityError, match="is taken on origin"):
        workspace.publish(line=replace(workspace.line, publish=PublishTable(push=True)))
