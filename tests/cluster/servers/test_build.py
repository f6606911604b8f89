"""Servers are pinned, known by what they are built from, and their builder says what it lacks."""

import shutil

import pytest
from tests.cluster.rig.trouble import Lacking
from tests.cluster.servers import build


def test_programs_of_the_cluster_are_all_there():
    kubernetes = {"kubectl", "kube-apiserver", "kubelet", "etcd", "coredns", "pause"}
    wanted = kubernetes | {"jobset", "trainer-controller-manager", "kueue"}
    assert wanted <= {name for module in build.MODULES for name in module.programs}


@pytest.mark.parametrize("module", build.MODULES, ids=lambda module: module.name)
def test_every_module_is_pinned_by_hashes(module):
    pins = (module.source / "go.mod").read_text()
    assert "=> ." not in pins
    if "require" in pins:
        assert " h1:" in (module.source / "go.sum").read_text()


def test_changed_pin_is_another_folder(tmp_path, monkeypatch):
    module = build.Module(name="pause", packages=(".",))
    before = module.folder
    copied = tmp_path / "pause"
    shutil.copytree(module.source, copied)
    (copied / "go.mod").write_text((copied / "go.mod").read_text() + "\n// another\n")
    monkeypatch.setattr(build.Module, "source", property(lambda self: copied))
    assert module.folder != before


def test_without_go_it_says_what_would_be_built_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_TEST_CLUSTER", str(tmp_path))
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(Lacking, match=r"kube-apiserver.*apt-get install golang"):
        build.build()


def test_operators_of_the_suites_are_built_for_those_who_ask_for_them(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_TEST_CLUSTER", str(tmp_path))
    cluster = {name for _, name in build.missing()}
    assert {name for _, name in build.missing(operators=True)} - cluster == {
        "jobset", "trainer-controller-manager", "kueue"
    }  # fmt: skip
