"""Kernel settings: the first values of a boot are kept, whatever comes between, and put back."""

import json

import pytest
from tests.cluster.rig import sysctls


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Files in place of the kernel's."""
    folder = tmp_path / "sys"
    folder.mkdir()
    monkeypatch.setattr(sysctls, "_file", lambda name: folder / name)
    for name in sysctls._NAMES:
        (folder / name).write_text("0\n")
    return folder


def test_what_was_kept_first_comes_back(settings, tmp_path):
    kept = tmp_path / "kept"
    sysctls.keep(kept)
    (settings / "kernel.panic").write_text("10\n")
    sysctls.keep(kept)  # of a start after a crash
    sysctls.put_back(kept)
    assert (settings / "kernel.panic").read_text() == "0"
    assert not kept.exists()


def test_values_of_an_earlier_boot_are_forgotten(settings, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text(json.dumps({"boot": "another", "values": {"kernel.panic": "99"}}))
    sysctls.keep(kept)
    assert json.loads(kept.read_text())["values"]["kernel.panic"] == "0"


def test_nothing_kept_changes_nothing(settings, tmp_path):
    sysctls.put_back(tmp_path / "nothing")
    assert (settings / "kernel.panic").read_text() == "0\n"
