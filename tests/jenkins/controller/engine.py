"""The engine that Jenkins runs pipelines with, and our small controller around it, compiled."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.jenkins.compiler import groovy_home, java_home

HERE = Path(__file__).parent
ARTIFACT = ("com.cloudbees", "groovy-cps", "1.31")
SHA256 = "ecfd4e43d75ca8204e278ff01d27c10d4b0d7b3ee781a18d1c363fc04c5c3e7e"
FETCH_SECONDS = 120
SOURCES = ("NullSCM.groovy", "Program.groovy", "Controller.groovy")


def java() -> str:
    return str(java_home() / "bin" / "java")


def class_path() -> str:
    groovy = next((groovy_home() / "embeddable").glob("groovy-all-2.4.*[0-9].jar"))
    guava = Path("/usr/share/java/guava.jar")
    if not guava.is_file():
        pytest.skip("no guava here; apt-get install libguava-java brings it")
    return f"{groovy}:{_engine()}:{guava}"


def compile_controller(folder: Path) -> str:
    """Class path of the compiled controller, with what it needs; skips the test where that cannot be had."""
    there = class_path()
    folder.mkdir()
    command = [java(), "-cp", there, "org.codehaus.groovy.tools.FileSystemCompiler", "-d", str(folder)]
    done = subprocess.run(
        [*command, *(str(HERE / name) for name in SOURCES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return f"{there}:{folder}"


def _engine() -> Path:
    group, name, version = ARTIFACT
    local = Path(os.environ.get("HOME", "/"), ".m2", "repository")
    jar = local / group.replace(".", "/") / name / version / f"{name}-{version}.jar"
    if not jar.is_file():
        _fetch(f"{group}:{name}:{version}", local)
    if not jar.is_file():
        pytest.skip(f"Maven did not bring {name} {version}, the engine of pipelines")
    assert hashlib.sha256(jar.read_bytes()).hexdigest() == SHA256, f"{jar} is not the pinned one"
    return jar


def _fetch(artifact: str, local: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("no mvn here to fetch the engine of pipelines; apt-get install maven brings it")
    command = ["mvn", "-q", "-B", f"-Dmaven.repo.local={local}", "dependency:get", "-Dtransitive=false"]
    command += [f"-Dartifact={artifact}"]
    environ = {**os.environ, "JAVA_HOME": str(java_home())}
    subprocess.run(command, env=environ, capture_output=True, timeout=FETCH_SECONDS, check=False)
