"""A rank whose environment lacks cryptography: rounds work, and a secure sum is refused with what is missing."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['cryptography'] = None; "


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("gangline.train.roles.simulated_members", ""),
        ("gangline.federated.secure_sum", "NotInstalledError: federated.secure_sum needs cryptography"),
    ],
)
def test_only_a_secure_sum_needs_cryptography(module, wanted):
    command = [sys.executable, "-c", f"{WITHOUT}import {module}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not wanted), done.stderr
    assert wanted in done.stderr
