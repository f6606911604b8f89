"""Control groups of the cluster: made in each hierarchy, removed with all that a kubelet made below them."""

import pytest
from tests.cluster.rig import cgroups, places
from tests.cluster.rig.trouble import Lacking


@pytest.fixture
def root(tmp_path, monkeypatch):
    """As version 1 lays them out."""
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    for name in ("cpuset", "memory", "unified"):
        (tmp_path / name).mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / "cpuset" / name).write_text("0-1")
    return tmp_path


def test_each_hierarchy_gets_one_and_the_unified_one_none(root):
    cgroups.make()
    assert sorted(path.parent.name for path in cgroups.folders()) == ["cpuset", "memory"]


def test_version_two_gets_one_that_hands_its_controllers_down(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    cgroups.make()
    assert cgroups.folders() == [tmp_path / places.cgroup()]
    assert "+memory" in (tmp_path / places.cgroup() / "cgroup.subtree_control").read_text()


def test_remove_takes_leaves_first(root):
    cgroups.make()
    (root / "memory" / places.cgroup() / "kubepods" / "pod1").mkdir(parents=True)
    assert cgroups.remove() == []
    assert cgroups.folders() == []


def test_group_in_use_is_reported(root):
    cgroups.make()
    (root / "memory" / places.cgroup() / "busy").write_text("stays")
    assert cgroups.remove(seconds=0) == [root / "memory" / places.cgroup()]


def test_machine_that_lets_no_one_make_one_is_shown_why(tmp_path, monkeypatch):
    (tmp_path / "memory").write_text("")
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path / "memory")
    with pytest.raises(Lacking, match=r"no control group can be made.*--privileged"):
        cgroups.make()
