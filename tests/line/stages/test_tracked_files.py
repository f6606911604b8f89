"""Runs of repositories whose data DVC or Git LFS track: what programs find, what pins it, and who may read it."""

import shutil
from dataclasses import replace

import pytest
from tests.data.recorded import FEATURES, FILES, LFS_DATA, VERSIONS, dvc_repository, lfs_repository
from tests.line import repositories

from gangline.build import code_layer
from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.git.repository import Repository
from gangline.line.request.run_request import resolve_request
from gangline.line.results.reproducibility import reproducibility_items
from gangline.line.stages.preview import preview
from gangline.line.stages.tracked_files import fetch_pointers, find_pointers
from gangline.report.inputs import NO_DATA
from gangline.spec.codec import from_json
from gangline.spec.config.site_tables import SourceTable
from gangline.spec.data_source import DataSource
from gangline.spec.run_flags import stage
from gangline.storage.folder.store import FolderStore

READER = """\
import json, pathlib
rows = pathlib.Path("data/train.csv").read_text().split()[1:]
pathlib.Path("out").mkdir()
pathlib.Path("out/mean.txt").write_text("6")
pathlib.Path("metrics.json").write_text(json.dumps({"rows": len(rows)}))
"""
KEYS = 'metrics = "metrics.json"\noutputs = ["data/**", "out/**"]\n'


def line_with(keys="", tables=""):
    return repositories.LINE.replace("[train]", f"{keys}[train]", 1) + tables


def pointers(repo):
    found = resolve_request(repo, commit=None, overrides=(), strategy=None)
    return found, find_pointers(found.repository, found.tree, found.line, commit=found.commit)


def sourced(workspace, folder):
    """The workspace with a source that holds the recorded remote."""
    table = SourceTable(url=f"file://{folder}")
    workspace.site = replace(workspace.site, source={"dvc": table})
    return workspace


@pytest.fixture
def tracked(workspace, tmp_path, request):
    """A workspace whose data a real DVC tracks, with a source for its remote."""
    workspace.repo = dvc_repository(tmp_path / "dvc", getattr(request, "param", "v3"), line=line_with(KEYS))
    repositories.commit(workspace.repo, {"answer.py": READER})
    return sourced(workspace, tmp_path / "dvc")


@pytest.mark.parametrize("tracked", VERSIONS, indirect=True)
def test_a_program_finds_each_file_where_its_repository_says_and_the_record_pins_it(tracked):
    record = tracked.run()
    assert record.run.verdict == "passed"
    assert record.metrics["rows"].value == 3
    assert record.inputs.data != NO_DATA
    data = from_json(DataSource, tracked.store.get(str(stage(record, "build").outputs["data"])).data)
    assert {each.path: tracked.store.get(each.key).data for each in data.tracked} == FILES
    assert stage(record, "build").outputs["tracked"] == "6 files by DVC, 104 B, md5 pinned"
    assert "6 files by DVC" in stage(record, "build").message
    (item,) = [each for each in reproducibility_items(record) if each.name == "data"]
    assert item.pinned == "yes"
    assert item.by.startswith(f"digest {record.inputs.data[:12]}: 6 files by DVC")
    assert record.ran.num_reads == 0, "a placed file is a declared input"
    assert [each.path for each in record.outputs.files] == ["out/mean.txt"], "a placed file is no output"


def test_a_second_run_fetches_nothing_and_takes_the_training(tracked, tmp_path):
    first = tracked.run()
    fetching = "fetching data/images and what else is not in the store from [source.dvc]"
    assert [note for note in tracked.seen.notes if note.startswith(fetching)]
    shutil.rmtree(tmp_path / "dvc" / "remote" / "files")
    repositories.commit(tracked.repo, {"README.md": "words"})
    second = tracked.run()
    assert not [note for note in tracked.seen.notes if "fetch" in note]
    assert second.inputs.data == first.inputs.data
    assert stage(second, "train").state == "taken"


def test_data_that_changed_train_again_though_the_code_is_the_same(tracked):
    """The layer has no `.dvc` file here, so that its digest does not tell."""
    lines = line_with('include = ["answer.py", "data/train.csv"]\nmetrics = "metrics.json"\n')
    repositories.commit(tracked.repo, {"line.toml": lines})
    first = tracked.run()
    other = (tracked.repo / "data/test.csv.dvc").read_text().replace("test.csv", "train.csv")
    repositories.commit(tracked.repo, {"data/train.csv.dvc": other})
    second = tracked.run()
    assert first.inputs.code == second.inputs.code
    assert first.inputs.data != second.inputs.data
    assert stage(second, "train").state == "done"
    assert (first.metrics["rows"].value, second.metrics["rows"].value) == (3, 1)


def test_a_file_of_the_remote_that_is_another_one_ends_the_run_with_both_digests(tracked, tmp_path):
    (place,) = (tmp_path / "dvc" / "remote" / "files" / "md5" / "c7").iterdir()
    place.write_bytes(place.read_bytes().replace(b"1,2", b"1,3"))
    with pytest.raises(
        IntegrityError, match=r"data/train\.csv: wanted md5 c711e0c82f0a91970d24348b315d6ce0 .* found md5"
    ):
        tracked.run()
    place.unlink()
    with pytest.raises(StorageError, match=r"data/train\.csv: wanted md5 c711e.* found nothing"):
        tracked.run(again=True)


def test_a_blob_that_is_another_one_reaches_no_rank(tracked):
    first = tracked.run()
    data = from_json(DataSource, tracked.store.get(str(stage(first, "build").outputs["data"])).data)
    (train,) = [each for each in data.tracked if each.path == "data/train.csv"]
    tracked.store.put(train.key, b"x" * train.size_bytes)
    with pytest.raises(IntegrityError, match=r"data/train\.csv should be blobs/sha256/"):
        tracked.run(again=True)


@pytest.mark.parametrize("url", ["https://remote.example/a", "/etc", "../../remote", "s3://bucket/a"])
def test_no_remote_is_asked_that_the_site_does_not_name(workspace, tmp_path, url, monkeypatch):
    workspace.repo = dvc_repository(tmp_path / "dvc", "v3", remote=url)
    sourced(workspace, tmp_path / "elsewhere")
    monkeypatch.setattr("gangline.data.sources.open_source", lambda *_: pytest.fail("a source was opened"))
    with pytest.raises(ConfigError, match=r"wanted a source of the site that holds the remote .*project\.exclude = "):
        workspace.run()


def test_a_fork_reads_no_source_whatever_the_store_has_of_it(tracked, tmp_path, monkeypatch):
    tracked.run()
    request, found = pointers(tracked.repo)
    monkeypatch.setattr("gangline.data.sources.open_source", lambda *_: pytest.fail("a source was opened"))
    with pytest.raises(ConfigError, match="a fork's commit reads no source of the site; leave it out"):
        fetch_pointers(
            found, repository=request.repository, store=tracked.store, site=tracked.site, environ={},
            project="cheap", trust="fork", spool=tmp_path, notify=print,
        )  # fmt: skip


def test_what_the_line_leaves_out_is_not_fetched(tracked):
    repositories.commit(
        tracked.repo, {"line.toml": repositories.LINE.replace('"*.md"', '"*.md", "data/images.dvc", "data/test.csv"')}
    )
    _, found = pointers(tracked.repo)
    assert [each.path for each in found.pointers] == ["data/train.csv"]
    repositories.commit(tracked.repo, {"line.toml": line_with('include = ["answer.py"]\n')})
    assert pointers(tracked.repo)[1].pointers == ()


def test_a_file_of_the_commit_wins_over_its_pointer(tracked):
    repositories.commit(tracked.repo, {"data/train.csv": "x,y\n1,1\n"})
    assert "data/train.csv" not in [each.path for each in pointers(tracked.repo)[1].pointers]


@pytest.mark.parametrize(("keys", "tables", "in_code"), [
    ('include = ["**", "features/**"]\n', "", True), ("", '[data]\ntext = ["repo:features/*.csv"]\n', False),
])  # fmt: skip
def test_outputs_of_stages_are_fetched_where_the_line_names_them(tracked, keys, tables, in_code):
    assert "features" not in [each.path for each in pointers(tracked.repo)[1].pointers]
    repositories.commit(tracked.repo, {"line.toml": line_with(keys, tables)})
    request, found = pointers(tracked.repo)
    fetched = fetch_pointers(
        found, repository=request.repository, store=tracked.store, site=tracked.site, environ={}, project="cheap",
        trust="own", spool=tracked.repo / ".gangline", notify=print,
    )  # fmt: skip
    assert {path: tracked.store.get(file.key).data for path, file in fetched.text.items()} == (
        {} if in_code else FEATURES
    )
    assert FEATURES.keys() <= {each.path for each in fetched.code} if in_code else True
    assert in_code or not FEATURES.keys() & {each.path for each in fetched.code}


def test_globs_of_data_find_tracked_files(tracked):
    repositories.commit(tracked.repo, {"line.toml": line_with("", '[data]\ntext = ["repo:data/*.csv"]\n')})
    record = tracked.run()
    data = from_json(DataSource, tracked.store.get(str(stage(record, "build").outputs["data"])).data)
    assert {each.path: tracked.store.get(each.key).data for each in data.files} == {
        f"repo/{path}": FILES[path] for path in ("data/test.csv", "data/train.csv")
    }


def test_a_line_in_a_folder_has_its_files_in_that_folder(workspace, tmp_path):
    whole = dvc_repository(tmp_path / "dvc", "v3")
    line = line_with('include = ["**", "../data/**"]\nmetrics = "metrics.json"\n')
    reader = READER.replace('"data/', '"../data/')
    repositories.commit(whole, {"model/line.toml": line, "model/answer.py": reader})
    workspace.repo = whole / "model"
    sourced(workspace, tmp_path / "dvc" / "remote")
    assert workspace.run().metrics["rows"].value == 3


def test_a_pointer_without_a_size_is_shown_without_one(tracked):
    """As those that DVC 1 wrote are: their locks have no schema either."""
    old = "outs:\n- md5: c711e0c82f0a91970d24348b315d6ce0\n  path: train.csv\n"
    repositories.git(tracked.repo, "rm", "--quiet", "data/images.dvc", "data/test.csv.dvc")
    repositories.commit(tracked.repo, {"data/train.csv.dvc": old})
    assert str(pointers(tracked.repo)[1]) == "1 file by DVC, md5 pinned"


def test_a_plan_shows_what_is_pinned_and_fetches_nothing(tracked):
    repositories.settle_inventory(tracked.repo)
    assert preview(tracked.repo, **tracked.where).data == "6 files by DVC, 104 B, md5 pinned"
    assert list(tracked.store.list("pointers/")) == []


@pytest.mark.parametrize("local", [True, False])
def test_a_file_of_git_lfs_is_in_the_code_where_its_objects_are(workspace, tmp_path, local):
    lines = line_with('metrics = "metrics.json"\n')
    workspace.repo = lfs_repository(tmp_path / "lfs", line=lines, local=local)
    program = 'import json, pathlib\nn = pathlib.Path("data/w.bin").stat().st_size\n'
    repositories.commit(
        workspace.repo, {"answer.py": program + 'open("metrics.json", "w").write(json.dumps({"n": n}))'}
    )
    if not local:
        with pytest.raises(
            ConfigError, match=r'data/w\.bin: .*Git LFS pointer to 1\.0 kB.*exclude = \["data/w\.bin"\]'
        ):
            workspace.run()
        objects = lfs_repository(tmp_path / "other") / ".git" / "lfs" / "objects"
        workspace.site = replace(workspace.site, source={"lfs": SourceTable(url=f"file://{objects}")})
    record = workspace.run(again=not local)
    assert record.metrics["n"].value == len(LFS_DATA)
    assert stage(record, "build").outputs["tracked"] == "1 file by Git LFS, 1.0 kB, sha256 pinned"


def test_objects_of_git_lfs_are_not_for_forks(tmp_path):
    """Otherwise its code could name the digest of a file of any private branch."""
    request, found = pointers(lfs_repository(tmp_path / "lfs"))
    with pytest.raises(ConfigError, match="a fork's commit reads no source"):
        fetch_pointers(
            found, repository=request.repository, store=FolderStore(tmp_path / "store"), site=None, environ={},
            project="cheap", trust="fork", spool=tmp_path, notify=print,
        )  # fmt: skip


def test_a_pointer_that_is_not_placed_enters_no_layer(tmp_path):
    repo = Repository.at(lfs_repository(tmp_path / "lfs"))
    request, found = pointers(repo.root)
    with pytest.raises(ConfigError, match="Git LFS pointer"):
        code_layer.pack(repo, request.tree, request.line.project)
    assert code_layer.pack(repo, request.tree, request.line.project, placed=found.lfs_paths).files == 2
