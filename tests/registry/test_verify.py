"""`verify` says of each thing whether it is what was signed, and refuses what is no model before opening it."""

import pickle
import shutil
from pathlib import Path

import pytest
from tests.registry.test_promote import flip, point

from gangline.errors import UsageError
from gangline.line.results.verification import verify


@pytest.fixture
def look(published):
    workspace, _ = published

    def verified(target):
        return verify(
            str(target), store=workspace.store, repo=workspace.repo, site=workspace.site, environ=workspace.environ
        )

    return verified


@pytest.fixture
def folder(published, tmp_path):
    """The published files, downloaded by hand."""
    workspace, answer = published
    target = tmp_path / "download"
    target.mkdir()
    for file in answer.files:
        shutil.copy(workspace.files / file.key, target / file.path)
    return target


def failed(checks):
    return [check.name for check in checks if not check.ok]


@pytest.mark.parametrize("target", ["bytegpt/1", "models/bytegpt/1.json", "bytegpt@production"])
def test_a_version_is_whole_under_each_of_its_names(published, look, target):
    point(published[0])
    checks = look(target)
    assert failed(checks) == []
    assert {"files", "complete", "signature", "provenance", "record", "tag"} <= {check.name for check in checks}


def test_a_file_planted_next_to_a_published_model_is_refused(published, look):
    workspace, answer = published
    planted = f"{answer.files[0].key.rpartition('/')[0]}/pytorch_model.bin"
    workspace.store.put(planted, b"a pickle, perhaps")
    checks = {check.name: check for check in look("bytegpt/1")}
    assert failed(checks.values()) == ["alone"]
    assert f"{planted} is in the folder of models/bytegpt/1.json, which does not list it" in checks["alone"].text
    workspace.store.delete(planted)
    assert failed(look("bytegpt/1")) == []


def test_a_checkpoint_and_a_run_are_verified_by_signature_and_digests(published, look):
    workspace, _ = published
    assert failed(look(workspace.checkpoint)) == []
    assert failed(look(workspace.record.run.id)) == []
    shard = next((workspace.files / workspace.checkpoint).glob("*.safetensors"))
    shard.write_bytes(flip(shard.read_bytes()))
    assert failed(look(workspace.checkpoint)) == ["step-00000002"]
    assert failed(look(f"{workspace.record.prefix}/record.json")) == ["step-00000002"]


def test_a_downloaded_folder_is_verified_without_store_or_record(look, folder):
    checks = look(folder)
    assert failed(checks) == []
    assert [check.name for check in checks] == ["formats", "weights", "signature"]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "provenance.json", "card.md"])
def test_a_changed_byte_in_a_folder_is_refused(look, folder, name):
    path = folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert "signature" in failed(look(folder))


def test_a_missing_and_an_added_file_are_refused(look, folder):
    (folder / "extra.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert failed(look(folder)) == ["signature"]
    (folder / "extra.safetensors").unlink()
    (folder / "card.md").unlink()
    assert failed(look(folder)) == ["signature"]


class Marker:
    """Writes a file when somebody unpickles it."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


@pytest.mark.row("P1")
@pytest.mark.parametrize(
    "name",
    ["weights.pt", "pytorch_model.bin", "model.pth", "model.pkl", "model.ckpt", ".metadata", "model.pt2", "model.npy",
     "model.sig.pt", "model.safetensors.pt", "data.joblib", "model.h5", ".gitattributes", "run.sh", "code.py",
     "MODEL.SAFETENSORS", "model.zip", "model.onnx", "notes.txt"],
)  # fmt: skip
def test_a_planted_file_of_another_format_is_refused_by_name_before_anything_is_opened(look, folder, tmp_path, name):
    marker = tmp_path / "marker"
    (folder / name).write_bytes(pickle.dumps(Marker(marker)))
    (check,) = look(folder)
    assert (check.name, check.ok) == ("formats", False)
    assert name in check.text
    assert not marker.exists()


@pytest.mark.row("P1")
def test_a_pickle_in_the_place_of_weights_is_refused_unopened(look, folder, tmp_path):
    marker = tmp_path / "marker"
    (folder / "model.safetensors").write_bytes(pickle.dumps(Marker(marker)))
    assert failed(look(folder)) == ["weights", "signature"]
    assert not marker.exists()


def test_links_and_folders_inside_a_model_folder_are_refused(look, folder):
    (folder / "more.safetensors").symlink_to("/etc/passwd")
    assert failed(look(folder)) == ["formats"]
    (folder / "more.safetensors").unlink()
    (folder / "more.safetensors").mkdir()
    assert failed(look(folder)) == ["formats"]


def test_an_unsigned_folder_is_refused(look, folder):
    (folder / "model.sig").unlink()
    checks = look(folder)
    assert failed(checks) == ["signature"]
    assert "never signed" in checks[-1].text


@pytest.mark.parametrize("target", ["bytegpt/9", "bytegpt@nowhere", "bytegpt-00000000-zzzzzz", "no such thing", ""])
def test_what_is_not_there_is_a_usage_error(look, target):
    with pytest.raises(UsageError):
        look(target)


def test_a_checkpoint_that_is_not_there_is_a_usage_error(published, look):
    with pytest.raises(UsageError, match="no checkpoint"):
        look(published[0].checkpoint[:-1] + "9")
