"""IN1: what a server would load is verified, or is not there at all."""

import random
import shutil
from dataclasses import replace

import pytest

from gangline.errors import IntegrityError, UsageError
from gangline.line.record.store import read_record
from gangline.line.results.served_version import fetch_code, fetch_verified, find_version, require_verified
from gangline.registry.promote import promote
from gangline.registry.versions import read_version
from gangline.train.model.golden import GOLDEN, read_golden

pytestmark = pytest.mark.row("IN1")


@pytest.fixture
def fetch(published, tmp_path):
    workspace, _ = published

    def fetch(target="bytegpt/1", into=tmp_path / "model"):
        named = find_version(target, workspace.store)
        return fetch_verified(named, into, store=workspace.store, site=workspace.site, environ=workspace.environ)

    return fetch


def test_a_verified_version_and_its_code_are_put_where_a_server_loads_them(published, fetch, tmp_path):
    workspace, _ = published
    assert all(check.ok for check in fetch())
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        each.path for each in read_version(workspace.store, "bytegpt", 1).files
    }
    assert read_golden(tmp_path / "model").outputs["output"].shape[0] == 2
    assert fetch_code(tmp_path / "model", tmp_path / "code", workspace.store) == 1
    assert (tmp_path / "code" / "model.py").is_file()


def strike(workspace, rng, kind):
    """Tamper with the store's folder of the version."""
    version = read_version(workspace.store, "bytegpt", 1)
    file = workspace.files / rng.choice(version.files).key
    if kind == "flip":
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    elif kind == "extra":
        (file.parent / "extra.safetensors").write_bytes(b"x")
    elif kind == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif kind == "swap":
        other = workspace.files / rng.choice([each.key for each in version.files if not file.match(each.key)])
        shutil.copy(other, file)
    else:
        file.unlink()


@pytest.mark.parametrize("count", [10, pytest.param(300, marks=pytest.mark.slow)], ids=["smoke", "full"])
def test_no_tampered_version_is_served(published, fetch, tmp_path, count):
    workspace, _ = published
    rng, kept = random.Random(105), tmp_path / "kept"
    shutil.copytree(workspace.files, kept)
    for number in range(count):
        strike(workspace, rng, ("flip", "extra", "cut", "swap", "missing")[number % 5])
        into = tmp_path / f"model-{number}"
        try:
            checks = fetch(into=into)
            with pytest.raises(IntegrityError, match="is not served"):
                require_verified("bytegpt 1", checks)
        except IntegrityError:
            pass
        assert list(into.iterdir()) == []
        shutil.rmtree(workspace.files)
        shutil.copytree(kept, workspace.files)


def test_a_version_under_the_name_of_another_model_is_refused(published, fetch):
    workspace, _ = published
    version = read_version(workspace.store, "bytegpt", 1)
    other = replace(version, model="other")
    workspace.store.put(other.key, other.to_json())
    assert "provenance" in [check.name for check in fetch("other/1") if not check.ok]


def test_a_version_signed_by_another_key_is_refused(published, fetch, tmp_path):
    workspace, _ = published
    workspace.environ = {"XDG_CONFIG_HOME": str(tmp_path / "other"), "HOME": str(tmp_path)}
    named = find_version("bytegpt/1", workspace.store)
    checks = fetch_verified(
        named, tmp_path / "model", store=workspace.store, site=workspace.site, environ=workspace.environ
    )
    assert "signature" in [check.name for check in checks if not check.ok]


def test_an_alias_without_a_signature_is_refused(published, fetch, tmp_path):
    workspace, _ = published
    alias = promote(
        "bytegpt", 1, "champion", store=workspace.store, repo=workspace.repo, site=workspace.site,
        environ=workspace.environ, because="best", read_record=read_record,
    )  # fmt: skip
    assert all(check.ok for check in fetch("bytegpt@champion"))
    workspace.store.put(alias.key, replace(alias, who="somebody").to_json())
    into = tmp_path / "again"
    assert [check.name for check in fetch("bytegpt@champion", into) if not check.ok] == ["alias"]
    assert list(into.iterdir()) == []


def test_names_of_versions(published, fetch):
    workspace, _ = published
    for target in ("bytegpt", "bytegpt@1", "bytegpt/1"):
        assert find_version(target, workspace.store).version.version == 1
    for target, says in (
        ("bytegpt/2", "versions of bytegpt: 1"),
        ("bytegpt@prod", "gangline promote"),
        ("B!", "wanted MODEL"),
    ):
        with pytest.raises(UsageError, match=says):
            find_version(target, workspace.store)


def test_a_folder_with_files_is_left_alone(fetch, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / GOLDEN).write_bytes(b"mine")
    with pytest.raises(UsageError, match="has files"):
        fetch()
    assert (tmp_path / "model" / GOLDEN).read_bytes() == b"mine"
