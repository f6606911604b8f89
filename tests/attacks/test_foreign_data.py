"""A1, data of a line that are others' files: the driver copies nothing for a line that its project may not read."""

import json
import os

import pytest
from tests.line import repositories
from tests.line.conftest import Workspace

from gangline.data.resolve import resolve_text
from gangline.errors import ConfigError
from gangline.line.request.run_request import CommitOrigin
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.site import Site, StoreTable
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import list_all

SECRET = b"what project b measured"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHERS = f"runs/b/{COMMIT}/b-01234567-k7q2mx"
OWN = f"runs/cheap/{COMMIT}/cheap-01234567-k7q2mx"
FORK = CommitOrigin(branch="their-idea", pull_request=7, trust="fork")
FOREIGN = [
    f"{OTHERS}/report.md", f"{OTHERS}/gang/out.txt", f"{OTHERS}/record.json", f"{OWN}/record.json", f"{OWN}/lease.json",
    f"{OWN}/lease.json/x", "runs/cheap/report.md", "runs/cheap", f"runs/cheap-2/{COMMIT}/cheap-01234567-k7q2mx/a",
    "blobs/sha256/" + "0" * 64, "models/b/1.json", f"images/{'0' * 64}.json",
    "logs/build/a.log", "open/b/b-01234567-k7q2mx", "bisects/b/a/state.json",
]  # fmt: skip


@pytest.fixture
def workspace(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    return Workspace(repo, Site(), {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})


def copies(workspace):
    """Blobs that hold what the line may not read."""
    blobs = [workspace.store.get(entry.key).data for entry in list_all(workspace.store, "blobs/")]
    return [blob for blob in blobs if SECRET in blob]


def build(workspace, kind, key, origin=None):
    """The build stage of a line with `key` for its data."""
    repositories.commit(workspace.repo, {"line.toml": f'{repositories.LINE}[data]\n{kind} = ["{key}"]\n'})
    record = workspace.run(origin=origin, until="build")
    return stage(record, "build")


@pytest.mark.row("A1")
@pytest.mark.parametrize("origin", [None, FORK], ids=["own", "fork"])
@pytest.mark.parametrize("kind", ["text", "shards"])
def test_a_line_that_names_others_files_is_refused_before_anything_is_read(workspace, kind, origin):
    for key in (f"{OTHERS}/report.md", f"{OTHERS}/gang/out.txt", "models/b/1.json", "logs/build/a.log"):
        workspace.store.put(key, SECRET)
    for key in FOREIGN:
        with pytest.raises(
            ConfigError, match=rf"^line\.toml: data\.{kind}\[0\]: wanted a key below a data pre"
        ) as refused:
            build(workspace, kind, key, origin)
        assert refused.value.exit_code == 10
        assert "data/NAME works" in str(refused.value)
    assert not workspace.records()
    assert not copies(workspace)


@pytest.mark.row("A1")
@pytest.mark.parametrize("origin", [None, FORK], ids=["own", "fork"])
@pytest.mark.parametrize("kind", ["text", "shards"])
@pytest.mark.parametrize("key", ["elsewhere/a.txt", "database/a.txt", "Data/a.txt", "data"])
def test_a_key_below_no_prefix_of_the_site_is_refused_before_it_is_read(workspace, kind, origin, key):
    workspace.store.put(key, SECRET)
    with pytest.raises(ConfigError, match=rf"^line\.toml: data\.{kind}\[0\]: .*data/NAME works"):
        build(workspace, kind, key, origin)
    assert not copies(workspace)


@pytest.mark.row("A1")
@pytest.mark.parametrize("kind", ["text", "shards"])
def test_a_fork_reads_no_run_of_the_project_either(workspace, kind):
    workspace.store.put(f"{OWN}/gang/out.txt", SECRET)
    with pytest.raises(ConfigError, match=r"of a run, which a fork's line does not read"):
        build(workspace, kind, f"{OWN}/gang/out.txt", FORK)
    assert not copies(workspace)


@pytest.mark.row("A1")
@pytest.mark.parametrize("origin", [None, FORK], ids=["own", "fork"])
def test_data_of_the_site_are_read_and_own_runs_by_own_lines(workspace, origin):
    workspace.site = Site(store=StoreTable(data=("corpora/public/",)))
    shard = workspace.store.put("blobs/sha256/" + "0" * 64, b"1") and {
        "key": "blobs/sha256/" + "0" * 64,
        "size_bytes": 1,
    }
    workspace.store.put("corpora/public/a.txt", b"text for all")
    workspace.store.put("corpora/public/a.json", json.dumps([shard]).encode())
    assert build(workspace, "text", "corpora/public/a.txt", origin).state == "done"
    assert build(workspace, "shards", "corpora/public/a.json", origin).state == "done"
    if origin is None:
        workspace.store.put(f"{OWN}/gang/out.txt", b"text of an earlier run")
        assert build(workspace, "text", f"{OWN}/gang/out.txt").state == "done"


@pytest.mark.row("A1")
def test_links_of_a_package_lead_to_nothing_next_to_it(tmp_path):
    (tmp_path / "site.toml").write_text(SECRET.decode())
    package = tmp_path / "thing"
    package.mkdir()
    (package / "a.py").write_text("pass")
    (package / "b.py").symlink_to("a.py")
    assert len(resolve(["package:thing/**"], package)) == 2
    (package / "site.py").symlink_to("../site.toml")
    (package / "folder").symlink_to("..")
    with pytest.raises(ConfigError, match=r"data\.text\[0\]: .*site\.py, which links outside the package"):
        resolve(["package:thing/**"], package)
    assert len(resolve(["package:thing/[ab].py"], package)) == 2
    os.mkfifo(package / "pipe.py")
    with pytest.raises(ConfigError, match=r"wanted regular files, found .*pipe\.py"):
        resolve(["package:thing/pipe.py"], package)


@pytest.mark.row("A1")
def test_a_folder_on_the_path_is_not_a_package(tmp_path, monkeypatch):
    (tmp_path / "credentials_of_site").mkdir()
    (tmp_path / "credentials_of_site" / "token").write_text(SECRET.decode())
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="wanted an installed package, found no package credentials_of_site"):
        resolve_text(["package:credentials_of_site/**"], tracked={}, access=DataAccess())


@pytest.mark.row("P5")
def test_a_fork_reads_no_package_of_the_driver_but_gangline(workspace):
    with pytest.raises(
        ConfigError, match=r"data\.text\[0\]: wanted a package that a fork's line may read \(gangline\)"
    ):
        build(workspace, "text", "package:pytest/**", FORK)
    assert build(workspace, "text", "package:gangline/units.py", FORK).state == "done"
    assert build(workspace, "text", "package:pytest/**").state == "done"


def resolve(patterns, root):
    return resolve_text(patterns, tracked={}, access=DataAccess(), package_root={"thing": root}.get)
