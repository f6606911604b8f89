"""A checkpoint of another run of the project, signed with the project's key: it does not pass for this run's."""

import json
from dataclasses import replace

import pytest
from tests.line import repositories
from tests.registry.passed_run import copy_of, template

from gangline.checkpoint.format.manifest import FileEntry, Manifest, RefusedCheckpoint, sign_manifest
from gangline.errors import IntegrityError
from gangline.spec.config.line import PublishTable
from gangline.storage.objects.protocol import list_all

pytestmark = pytest.mark.row("P1")


@pytest.fixture
def passed(tmp_path, tmp_path_factory):
    workspace = copy_of(template(tmp_path_factory, "passed")[0], tmp_path / "root")
    workspace.line = replace(workspace.line, publish=PublishTable(smoke=False))
    return workspace


def moved(workspace, other):
    """Copy the checkpoint of the workspace's run to where that of `other` would be."""
    place = f"{other.gang_prefix}/checkpoints/step-00000002"
    for entry in list_all(workspace.store, f"{workspace.checkpoint}/"):
        workspace.store.put(f"{place}/{entry.key.rpartition('/')[2]}", workspace.store.get(entry.key).data)
    return place


def named(record, place):
    """The record with the moved checkpoint for its own: as if its driver had not looked."""
    return replace(record, artifacts=tuple(replace(each, key=f"{place}/manifest.json") for each in record.artifacts))


def test_copied_into_the_folder_of_another_run_it_is_refused(passed):
    other = passed.attempt(2)
    place = moved(passed, other)
    with pytest.raises(RefusedCheckpoint, match=f"it is a checkpoint of {passed.record.run.id}"):
        passed.publish(named(other, place), checkpoint=place)


def test_ranks_that_resume_pass_over_it(passed):
    from torch import nn

    from gangline.checkpoint.loader import load

    other = passed.attempt(2)
    moved(passed, other)
    key = passed.key.checkpoint_key("bytegpt")
    with pytest.raises(IntegrityError, match=f"it is a checkpoint of {passed.record.run.id}"):
        load(passed.store, f"{other.gang_prefix}/checkpoints", nn.Linear(1, 1), None, key=key, group=None)


def test_one_that_was_written_again_after_the_training_is_not_published(passed):
    """The weights that were judged are those that are published: ranks that live on, or come later, change nothing."""
    manifest = json.loads(passed.store.get(f"{passed.checkpoint}/manifest.json").data)
    payload = json.loads(manifest["payload"]) | {"generation": 1}
    forged = Manifest(
        run=payload["run"], step=payload["step"], generation=1, plan_sha256="0" * 64,
        files={name: FileEntry(**each | {"blocks": tuple(each["blocks"])}) for name, each in payload["files"].items()},
    )  # fmt: skip
    passed.store.put(
        f"{passed.checkpoint}/manifest.json", sign_manifest(forged, passed.key.checkpoint_key("bytegpt"))
    )  # fmt: skip
    with pytest.raises(RefusedCheckpoint, match="as the record says"):
        passed.publish()


HANDS_IN = (
    repositories.PROGRAM
    + """
from gangline.checkpoint.format.manifest import FileEntry, Manifest, sign_manifest
from gangline.storage.open import open_store
plan = json.loads(pathlib.Path(os.environ["GANGLINE_PLAN"]).read_bytes())
place = plan["run_prefix"] + "/checkpoints/step-00000004"
empty = FileEntry(size_bytes=0, blocks=())
named = {"run": plan["run"], "plan_sha256": "0" * 64} | STRANGE
files = {"g0001-index.json": empty, "g0001-state.json": empty}
signed = sign_manifest(
    Manifest(step=4, generation=1, files=files, **named), pathlib.Path(os.environ["GANGLINE_KEY_FILE"]).read_bytes()
)
open_store(os.environ["GANGLINE_STORE"]).put(place + "/manifest.json", signed)
(out / "result.json").write_text(json.dumps({"role": "train", "final_step": 4, "checkpoint": place}))
"""
)


@pytest.mark.parametrize("strange", [{"run": "cheap-00000000-aaaaaa"}, {}], ids=["another run", "another plan"])
def test_a_program_that_hands_in_the_checkpoint_of_another_run_or_plan_fails(workspace, strange):
    """Ranks have the key of checkpoints; which run and plan theirs must be of is known to the driver."""
    repositories.commit(workspace.repo, {"answer.py": HANDS_IN.replace("STRANGE", repr(strange))})
    with pytest.raises(IntegrityError, match="wanted a checkpoint of cheap-"):
        workspace.run()
    (record,) = workspace.records()
    assert (record.run.verdict, record.run.exit_code) == ("failed", 50)
