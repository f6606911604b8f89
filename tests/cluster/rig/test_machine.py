"""What the machine lacks is told in one line that helps."""

import pytest
from tests.cluster.rig import machine
from tests.cluster.rig.trouble import Lacking


@pytest.fixture
def as_root(monkeypatch):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)


def test_missing_programs_are_named_with_the_line_that_installs_them(as_root, monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name, path=None: None if name in ("ctr", "socat") else "/bin/x")
    monkeypatch.setattr(machine, "_PLUGINS", machine.Path("/nowhere"))
    with pytest.raises(Lacking, match=r"apt-get install -y containerd containernetworking-plugins socat$"):
        machine.check()


def test_plain_user_is_shown_why(monkeypatch):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    with pytest.raises(Lacking, match="must run as root"):
        machine.check()


def test_machine_that_allows_no_namespaces_says_what_unshare_said(as_root, monkeypatch):
    refused = machine.subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    monkeypatch.setattr(machine, "_check_packages", lambda: None)
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(Lacking, match=r"Operation not permitted.*--privileged"):
        machine.check()


@pytest.mark.parametrize(
    ("home", "words"), [("/var/lib/x", "covered inside the cluster"), ("/tmp/" + "x" * 120, "too long for a socket")]
)
def test_folder_that_cannot_work_is_refused(as_root, monkeypatch, home, words):
    monkeypatch.setattr(machine, "_check_packages", lambda: None)
    monkeypatch.setattr(machine, "_check_namespaces", lambda: None)
    monkeypatch.setenv("GANGLINE_TEST_CLUSTER", home)
    with pytest.raises(Lacking, match=words):
        machine.check()
