"""Paths of the machine that a view gets: of an interpreter what gangline chose, and no more of a home than Python's."""

from pathlib import Path

import pytest
from tests.attacks.machine_users import require_users, run_as_nobody

from gangline.errors import ConfigError
from gangline.launch.sandbox.host_paths import covers_of, interpreter_paths
from gangline.spec.codec import canonical
from gangline.spec.python_environment import EnvironmentManifest, manifest_file


def made_environment(folder, base):
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(base)
    manifest = EnvironmentManifest(packages={}, added={}, base=str(base), python="3.12.3", size_bytes=0, seconds=0.0)
    manifest_file(folder).write_bytes(canonical(manifest))
    return str(folder / "bin" / "python")


def installation(folder):
    """Of Python, as a version manager keeps it in a home."""
    for name in ("bin", "lib", "share", "private"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "python3").touch()
    return folder / "bin" / "python3"


def test_of_an_installation_in_a_home_python_s_entries_are_shown_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    base = installation(tmp_path / "home" / "versions" / "3.12.3")
    found = interpreter_paths(made_environment(tmp_path / "environments" / "abc", base))
    top = base.parents[1]
    assert {tmp_path / "environments" / "abc", top / "bin", top / "lib", top / "share"} <= set(found)
    assert top not in found
    assert not any((top / "private").is_relative_to(each) for each in found)


def test_an_installation_elsewhere_is_shown_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    base = installation(tmp_path / "opt" / "python")
    assert base.parents[1] in interpreter_paths(made_environment(tmp_path / "environments" / "abc", base))


@pytest.mark.parametrize("manifest", [None, b"", b'{"base": 7}'])
def test_an_environment_without_a_manifest_is_not_believed(tmp_path, manifest):
    python = made_environment(tmp_path / "abc", installation(tmp_path / "opt"))
    (tmp_path / "abc.json").unlink()
    if manifest is not None:
        (tmp_path / "abc.json").write_bytes(manifest)
    with pytest.raises(ConfigError, match="gangline run --again installs it again"):
        interpreter_paths(python)


def test_a_secret_file_is_covered_by_its_folder_and_by_those_of_every_link_on_the_way(tmp_path):
    volume, keys = tmp_path / "volume", tmp_path / "keys"
    for folder in (volume / "..1", keys):
        folder.mkdir(parents=True)
    (volume / "..1" / "token").touch()
    (volume / "..data").symlink_to("..1")
    (volume / "token").symlink_to("..data/token")
    (keys / "token").symlink_to(volume / "token")
    assert set(covers_of(keys / "token")) == {keys, volume, volume / "..1"}
    assert list(covers_of(tmp_path / "gone" / "token")) == [tmp_path / "gone"], "it may be there later"
    assert set(covers_of(volume / "..data")) == {volume, volume / "..1"}, "a folder covers itself"


def test_a_secret_where_this_user_may_not_look_is_covered_all_the_same(tmp_path):
    require_users(bubblewrap=False)
    (tmp_path / "closed" / "keys").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    code = "import pathlib, sys; from gangline.launch.sandbox.host_paths import covers_of as covers;"
    code += "print(*covers(pathlib.Path(sys.argv[1])))"
    found = run_as_nobody(code, str(tmp_path / "closed" / "keys" / "token"))
    assert found.split() == [str(tmp_path / "closed" / "keys")]


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert set(covers_of(tmp_path / "one" / "token")) == {tmp_path}


@pytest.mark.parametrize("path", ["/etc/token", "/data/token", "/usr/local/etc/token", "/token", "/dev/fd/63"])
def test_of_a_folder_that_much_of_the_machine_shares_the_file_alone_is_hidden(path):
    assert list(covers_of(Path(path))) == [Path(path)]
