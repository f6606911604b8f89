"""Files of a program as a version: outputs or the newest save, verified, signed, promoted; and never opened."""

from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.errors import ConfigError, IntegrityError
from gangline.line.record.store import read_record
from gangline.line.results.verification import verify
from gangline.registry import folder_signature, version_checks
from gangline.registry.model_files import COMPLETE
from gangline.registry.program_files import find_program_files
from gangline.registry.promote import promote
from gangline.registry.run_artifacts import fetch_artifacts, list_artifacts, select_artifacts
from gangline.registry.versions import read_version
from gangline.signing.keys import signing_key
from gangline.spec.program_files import SAVE_KIND
from gangline.spec.run_flags import stage

pytestmark = pytest.mark.long

WRITES = """\
import pathlib
for name in ("out/model.pt", "out/a/same.bin", "out/b/same.bin"):
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"weights")
"""
SAVES = """\
from gangline.train import Program
with Program() as program:
    while program.has_more:
        program.step(loss=1.0)
        if program.save_due:
            program.save({"state.npz": b"s" * (17 << 20), "note.txt": b"n"})
"""


def commit(workspace, script, files, *, keys='outputs = ["out/**"]\n'):
    line = repositories.LINE.replace("[train]", f"{keys}[train]", 1) + f"[publish]\nfiles = {files}\n"
    repositories.commit(workspace.repo, {"answer.py": script, "line.toml": line})


def key_of(workspace, record):
    return signing_key(workspace.site, workspace.environ).checkpoint_key(record.run.project)


def test_an_output_becomes_a_signed_version_that_verifies_and_is_promoted(workspace, tmp_path):
    commit(workspace, WRITES, '["out/*.pt"]')
    record = workspace.run()
    assert "model.pt 7 B, as the program wrote it, not opened, signed" in stage(record, "publish").message
    where = {"store": workspace.store, "repo": workspace.repo, **workspace.where}
    assert all(check.ok for check in verify("cheap/1", **where))
    assert all(check.ok for check in verify(record.run.id, **where))
    assert promote("cheap", 1, "production", because="a test", who="t", read_record=read_record, **where)
    version = read_version(workspace.store, "cheap", 1)
    folder = tmp_path / "fetched"
    folder.mkdir()
    for file in version.files:
        (folder / file.path).write_bytes(workspace.store.get(file.key).data)
    assert [check.ok for check in verify(str(folder), **where)] == [True, True, True]


def test_a_program_that_saved_learns_which_key_publishes_its_files(workspace):
    commit(workspace, SAVES, "[]", keys="")
    record = workspace.run()
    assert stage(record, "publish").message == (
        "the line has no publish.files, which would name what is published of step-00000004 of program.save"
    )
    assert not any(each.kind == "model" for each in record.artifacts)


def test_the_report_names_files_where_they_are(workspace):
    commit(workspace, SAVES, '["state.npz"]', keys="")
    record = workspace.run()
    names = stage(record, "report").message.partition("{")[2].rstrip("}").split(",")
    assert {"record.json", "report.html", "gang/metrics.jsonl"} <= set(names)
    assert all(workspace.store.head(f"{record.prefix}/{name}") for name in names if name != "model")


def test_the_newest_save_becomes_a_version(workspace):
    commit(workspace, SAVES, '["*.npz"]', keys="")
    record = workspace.run()
    version = read_version(workspace.store, "cheap", 1)
    assert version.checkpoint.endswith("/program/step-00000004")
    (file,) = [file for file in version.files if file.path == "state.npz"]
    assert file.size_bytes == 17 << 20
    assert "note.txt" not in {file.path for file in version.files}
    assert [each.kind for each in record.artifacts if each.key == version.origin_key] == [SAVE_KIND]


def test_a_save_that_was_changed_after_the_training_is_not_published(workspace, tmp_path):
    commit(workspace, SAVES, '["*.npz"]', keys="")
    record = workspace.run()
    (artifact,) = [each for each in record.artifacts if each.kind == SAVE_KIND]
    stored = artifact.key.replace("manifest.json", "g0000-state.npz")
    data = workspace.store.get(stored).data
    workspace.store.put(stored, data[:-1] + b"?")
    source = find_program_files(workspace.store, record, globs=["*.npz"], key=key_of(workspace, record))
    with pytest.raises(IntegrityError, match="block 1 is not what was saved"):
        source.fetch(tmp_path)
    manifest = workspace.store.get(artifact.key).data
    workspace.store.put(artifact.key, manifest + b" ")
    with pytest.raises(IntegrityError):
        find_program_files(workspace.store, record, globs=["*.npz"], key=key_of(workspace, record))


def test_globs_that_name_nothing_fail_with_exit_10_after_a_note_before_the_training(workspace):
    commit(workspace, WRITES, '["other/*.onnx"]')
    with pytest.raises(ConfigError, match=r"publish\.files: .*found none that matches other/\*\.onnx"):
        workspace.run()
    said = "publish.files: project.outputs keeps out/**, and so no file that matches other/*.onnx; unless program.save"
    assert [note.startswith(said) for note in workspace.seen.notes].count(True) == 1
    assert read_version(workspace.store, "cheap", 1) is None


ODD = ["epoch=3-step=100.ckpt", "a b+c@d \u00e9.bin", "Model.bin", "model.bin", ".gitattributes"]
WRITES_ODD = f"import pathlib\npathlib.Path('out').mkdir()\nfor n in {ODD}: pathlib.Path('out', n).write_text(n)\n"
SAVED = '{"state.npz": b"s" * (17 << 20), "note.txt": b"n"}'


@pytest.mark.parametrize("way", ["outputs", "save"])
def test_names_as_people_publish_them_become_a_version_that_verifies_and_is_fetched(workspace, tmp_path, way):
    if way == "outputs":
        commit(workspace, WRITES_ODD, '["out/*"]')
    else:
        odd = "{" + ", ".join(f"{name!r}: {name!r}.encode()" for name in ODD) + "}"
        commit(workspace, SAVES.replace(SAVED, odd), '["*"]', keys="")
    record = workspace.run()
    version = read_version(workspace.store, "cheap", 1)
    assert {file.path for file in version.files} - set(COMPLETE) == set(ODD)
    assert all(check.ok for check in verify("cheap/1", store=workspace.store, repo=workspace.repo, **workspace.where))
    items = select_artifacts(list_artifacts(workspace.store, record), "model/*/*")
    for item, path in fetch_artifacts(workspace.store, items, tmp_path / "to", overwrite=False):
        if path.name in ODD:
            assert (item.kind, path.read_text()) == ("model", path.name)
    assert {path.name for path in (tmp_path / "to").rglob("*") if path.is_file()} == {*ODD, *COMPLETE}


FOLDER = """\
import pathlib
for name in ("out/hf/config.json", "out/hf/sub/model.pt", "out/other/model.pt"):
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(name)
"""


def test_files_that_share_a_name_or_have_one_of_a_versions_own_keep_their_folders(workspace):
    commit(workspace, FOLDER, '["out/**"]')
    workspace.run()
    version = read_version(workspace.store, "cheap", 1)
    wanted = {"files/out/hf/config.json", "files/out/hf/sub/model.pt", "files/out/other/model.pt"}
    assert {file.path for file in version.files} == {*COMPLETE, *wanted}
    where = {"store": workspace.store, "repo": workspace.repo, **workspace.where}
    assert all(check.ok for check in verify("cheap/1", **where))


SAVES_FOLDER = SAVES.replace(SAVED, '{"final": "out"}').replace("from gangline", f"{FOLDER}from gangline", 1)


def test_files_of_a_folder_that_was_saved_are_published_by_their_paths(workspace):
    commit(workspace, SAVES_FOLDER, '["final/hf/**/*.pt"]', keys="")
    workspace.run()
    assert {file.path for file in read_version(workspace.store, "cheap", 1).files} == {*COMPLETE, "model.pt"}


def test_a_model_of_another_project_is_refused_before_the_training(workspace):
    workspace.store.put("models/taken/project.json", b'{"project":"other"}')
    commit(workspace, WRITES, '["out/*.pt"]\nmodel = "taken"')
    with pytest.raises(IntegrityError, match="the model taken belongs to the project other"):
        workspace.run()
    (record,) = workspace.records()
    assert stage(record, "plan").state == "failed"
    assert stage(record, "train").started is None


def test_a_library_that_publishing_needs_is_missed_before_the_training(workspace, monkeypatch):
    monkeypatch.setattr(folder_signature, "find_spec", lambda name: None)
    commit(workspace, WRITES, '["out/*.pt"]')
    with pytest.raises(ConfigError, match=r"publishing needs model_signing, .*pip install 'gangline\[publish\]'"):
        workspace.run()
    (left,) = workspace.records()
    assert left.run.state == "open", "it is no verdict on the commit"
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "feature")
    repositories.commit(workspace.repo, {"x": "1"})
    assert workspace.run(until="plan").run.state == "open"  # nothing is published from there


def test_a_version_of_files_counts_only_where_the_line_publishes_files(workspace, monkeypatch):
    commit(workspace, WRITES, '["out/*.pt"]')
    record = workspace.run()
    version = read_version(workspace.store, "cheap", 1)
    values = {**record.inputs.values, "publish.files": []}
    other = replace(record, inputs=replace(record.inputs, values=values))
    monkeypatch.setattr(version_checks, "_sealed_record", lambda *_: other)
    (found,) = [
        each
        for each in verify("cheap/1", store=workspace.store, repo=workspace.repo, **workspace.where)
        if each.name == "record"
    ]
    assert (found.ok, "publish.files names none" in found.text) == (False, True)
    assert version.of_program


def test_a_program_that_leaves_nothing_to_publish_is_shown_what_publishes(workspace):
    commit(workspace, WRITES, "[]")
    assert stage(workspace.run(), "publish").message == (
        "the line has no publish.files, which would name what is published of 3 files of project.outputs"
        " (out/a/same.bin, out/b/same.bin, out/model.pt)"
    )
    commit(workspace, WRITES, "[]", keys="")
    assert "project.outputs keeps none of those that it wrote itself" in stage(workspace.run(), "publish").message
