"""P1: pickles planted in and around a checkpoint, signed or not: nothing is unpickled, no marker ever appears."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from tests.faults.s.damage import KEY, PREFIX, opened, victim

from gangline.checkpoint.format.blocks import write_file
from gangline.checkpoint.format.export import export_model
from gangline.checkpoint.format.manifest import list_checkpoints, read_manifest, sign_manifest
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.errors import IntegrityError

pytestmark = pytest.mark.row("P1")
FOLDER = f"{PREFIX}/step-00000002"


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (str(self.marker),))


def as_torch_file(bomb):
    buffer = io.BytesIO()
    torch.save({"x": bomb}, buffer)
    return buffer.getvalue()


def as_model_archive(bomb):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(bomb))
    return buffer.getvalue()


PAYLOADS = {"pickle": pickle.dumps, "torch": as_torch_file, "archive": as_model_archive}


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    return victim(tmp_path / "store", monkeypatch)


@pytest.fixture(params=PAYLOADS)
def payload(request, tmp_path):
    """Bytes that make a folder when they are unpickled; after the test it must not be there."""
    marker = tmp_path / "marker"
    data = PAYLOADS[request.param](Bomb(marker))
    yield data
    assert not marker.exists()


def test_payload_does_strike_where_pickles_are_read(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("name", ["model.pt", ".metadata", "weights.bin", "model.pt2", "__0_0.distcp", "latest"])
def test_planted_next_to_the_files_is_never_opened(damaged, payload, name):
    folder = damaged.store.url.removeprefix("file:")
    for place in (f"{folder}/{FOLDER}", f"{folder}/{PREFIX}"):
        Path(place, name).write_bytes(payload)
    assert opened(damaged) == (2, True, [])


def test_planted_instead_of_any_file_is_refused(damaged, payload, tmp_path):
    for name in sorted(damaged.files):
        damaged.put(name, payload)
        step, as_saved, refused = opened(damaged)
        assert (step, as_saved, [file for file, _ in refused]) == (1, True, [f"{FOLDER}/{name}"])
        with pytest.raises(IntegrityError):
            stored_digests(damaged.store, FOLDER, KEY, optimizer=True)
        damaged.restore()


@pytest.mark.parametrize("kind", ["index.json", "state.json", "r00000-0.safetensors"])
def test_planted_by_someone_who_has_the_key_is_still_not_unpickled(damaged, payload, kind, tmp_path):
    manifest = read_manifest(damaged.store, FOLDER, KEY)
    name = next(each for each in manifest.files if each.endswith(kind))
    manifest.files[name] = write_file(damaged.store, f"{FOLDER}/{name}", [payload])
    damaged.store.put(f"{FOLDER}/manifest.json", sign_manifest(manifest, KEY))
    step, as_saved, refused = opened(damaged)
    assert (step, as_saved, refused[0][0]) == (1, True, f"{FOLDER}/{name}")
    if kind != "state.json":
        with pytest.raises(IntegrityError):
            export_model(damaged.store, FOLDER, KEY, tmp_path / "out")


def test_planted_hint_is_ignored(damaged, payload):
    damaged.store.put(f"{PREFIX}/latest.json", payload)
    assert opened(damaged) == (2, True, [])
    assert [found.step for found in list_checkpoints(damaged.store, PREFIX)] == [2, 1]
