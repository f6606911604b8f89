"""What model code sees of the driver's environment, and what it gets in place of it."""

import getpass
import os

import pytest

from gangline.launch.kubernetes.objects import pod_environment
from gangline.launch.sandbox.environment import model_environ

UNKNOWN = 61_532
"""No user of a machine or an image."""


@pytest.mark.parametrize("found", [{}, {"LOGNAME": pod_environment.USER}], ids=["sandbox", "pod"])
def test_a_user_without_a_name_on_the_machine_has_one_for_programs_that_ask(tmp_path, monkeypatch, found):
    """torch 2.11 asks while it is imported, and fails where there is none."""
    found = found or model_environ(home=tmp_path, tmp=tmp_path)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: UNKNOWN)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    assert getpass.getuser() == "gangline"
