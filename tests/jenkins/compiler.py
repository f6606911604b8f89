"""Debian's Groovy, where it is."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def java_home() -> Path:
    """Where a Java lies; Debian's `groovy` looks for a default that a machine with another one has not."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("no java here; apt-get install groovy brings one")
    return Path(java).resolve().parents[1]


def groovy_home() -> Path:
    """Debian's Groovy 2.4, the version that Jenkins embeds."""
    home = Path("/usr/share/groovy")
    if not list((home / "lib").glob("groovy-2.4*.jar")):
        pytest.skip("no Groovy 2.4 here; apt-get install groovy brings it")
    return home


def compile_groovy(sources: dict[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Compile `sources` (name to text) into `folder`/out."""
    for name, text in sources.items():
        (folder / f"{name}.groovy").write_text(text)
    files = [str(folder / f"{name}.groovy") for name in sources]
    environ = {**os.environ, "JAVA_HOME": str(java_home()), "GROOVY_HOME": str(groovy_home())}
    command = [str(groovy_home() / "bin" / "groovyc"), "-d", str(folder / "out"), *files]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
