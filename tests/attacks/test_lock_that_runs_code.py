"""P8, a lock that names its packages by address: nothing of it reaches pip, which would run its build on the driver."""

import hashlib
import io
import os
import subprocess
import tarfile

import pytest
from tests.build.wheels import index

from gangline.build.builders.pip_layer import pip_command
from gangline.build.builders.recipe import make_recipe
from gangline.errors import ConfigError

BASE = f"registry.example/base@sha256:{'b' * 64}"
BACKEND = """
import os, pathlib
pathlib.Path({marker!r}).write_text("ran")
def build_wheel(*_, **__): raise SystemExit("no wheel")
def get_requires_for_build_wheel(*_, **__): return []
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def source_archive(marker):
    """A package whose build writes `marker`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in (("pyproject.toml", PROJECT), ("backend.py", BACKEND.format(marker=str(marker)))):
            member = tarfile.TarInfo(f"evil-1/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


LOCKS = {
    "an address with a fragment": "evil @ {url}#x==1 {hash}\n",
    "an address alone": "{url}#egg=evil==1 {hash}\n",
    "a path": "evil @ file://{path}#x==1 {hash}\n",
    "a local version that is a file name": "evil==1+{name} {hash}\n",
    "an encoding in which a comment is a line": "# coding: utf-7 ==1 --hash=sha256:0\n# +AAo-evil @ {url} {hash}\n",
    "a variable": "evil==1 ${{EVIL_REQUIREMENT}} --hash=sha256:0\n",
    "a form feed": "# comment ==1 --hash=sha256:0\fevil @ {url}#==1 {hash}\n",
}


@pytest.mark.row("P8")
@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS.keys())
def test_no_build_of_a_lock_by_address_runs_on_the_driver(lock, tmp_path):
    marker, name = tmp_path / "ran", "a.tar.gz"
    archive = source_archive(marker)
    file = tmp_path / f"evil==1+{name}"
    file.write_bytes(archive)
    with index() as served:
        served.add(("evil-1.tar.gz", archive))
        url, digest = f"{served.url}/files/evil-1.tar.gz", f"--hash=sha256:{hashlib.sha256(archive).hexdigest()}"
        text = lock.format(url=url, path=file, name=name, hash=digest).encode()
        try:
            recipe = make_recipe(text, base=BASE, image="registry.example/env")
        except ConfigError:
            return
        (tmp_path / "requirements.lock").write_bytes(recipe.lock)
        command = pip_command("requirements.lock", str(tmp_path / "site"))
        environ = os.environ | served.environ | {"EVIL_REQUIREMENT": f"@ {url} {digest}"}
        said = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert not marker.exists(), f"the build ran: {said.stdout[-300:]}"
    pytest.fail(f"the lock was handed to pip: {text!r}")
