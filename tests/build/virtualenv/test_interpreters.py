"""Choice of the Python of a lock: that of gangline, or another of this machine, behind shims too."""

import os
import sys

import pytest

from gangline.build.virtualenv import Uv, interpreters
from gangline.build.virtualenv.interpreters import find_interpreter, without_shims
from gangline.errors import ConfigError

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
SHIM = '#!/bin/sh\necho "pyenv: $0: command not found" >&2\nexit 127\n'


def manager(root, kind, *releases):
    """A version manager's folder with `releases`, and a shim that starts none of them."""
    for release in releases:
        program = root / kind / release / "bin" / f"python{MINOR}"
        program.parent.mkdir(parents=True)
        program.symlink_to(os.path.realpath(sys.executable))
    (root / "shims").mkdir(parents=True)
    shim = root / "shims" / f"python{MINOR}"
    shim.write_text(SHIM)
    shim.chmod(0o755)
    return root / "shims"


@pytest.mark.parametrize("kind", ["versions", "installs/python"])
def test_shims_give_way_to_the_releases_that_are_installed_newest_first(tmp_path, kind):
    shims = manager(tmp_path, kind, "3.9.18", "3.12.1", "3.13.0", "pypy3.10-7.3", "3.13.0t", "venv-of-mine")
    found = without_shims(f"/usr/local/bin:{shims}:/usr/bin").split(":")
    folders = [str(tmp_path / kind / release / "bin") for release in ("3.13.0", "3.12.1", "3.9.18")]
    assert found == ["/usr/local/bin", *folders, "/usr/bin"]


def test_a_path_without_shims_is_left_alone():
    assert without_shims("/usr/bin::/opt/bin") == "/usr/bin::/opt/bin"


def test_a_python_behind_a_shim_that_does_not_start_it_is_found(tmp_path, monkeypatch):
    shims = manager(tmp_path, "versions", f"{MINOR}.0")
    uv = Uv.find({"PATH": str(shims), "HOME": str(tmp_path)})
    monkeypatch.setattr(interpreters.platform, "python_version", lambda: "3.99.0")  # gangline's own does not fit
    found = find_interpreter(f"=={MINOR}.*", uv=uv, file="lock")
    assert found.program.samefile(sys.executable)
    assert found.minor == MINOR


@pytest.mark.parametrize("requires", ["==3.39.1", ">=3.38.1,<3.38.4"])
def test_a_python_that_no_machine_has_is_refused_with_what_fetches_it(tmp_path, requires):
    uv = Uv.find({"PATH": str(manager(tmp_path, "versions")), "HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match=rf"lock is for Python {requires}.*python_downloads = true"):
        find_interpreter(requires, uv=uv, file="lock")
