"""How each tool is called, to the word, and what becomes of its failures. pip is real, its index stands on loopback."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest
from tests.build.wheels import lock_of, make_wheel

from gangline.build.builders import dockerfile, open_builder, pip_layer
from gangline.build.builders.recipe import make_recipe
from gangline.build.builders.workspace import BuildWorkspace
from gangline.build.oci import Platform
from gangline.build.oci.documents import Image
from gangline.errors import BuildError, ConfigError

BASE = f"registry.example/base@sha256:{'b' * 64}"
SPAM = make_wheel("spam", "1.0", script=True)


@pytest.fixture
def recipe():
    return make_recipe(lock_of(SPAM), base=BASE, image="127.0.0.1:5000/env", platform=Platform())


@pytest.fixture
def bench(tmp_path, index):
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "S3_KEY": "canary-5d1e", **index.environ}
    return BuildWorkspace(folder=tmp_path, log=tmp_path / "build.log", environ=environ)


def test_docker_is_called_so(recipe):
    assert dockerfile.docker_build(recipe, "/ctx", pip_config="/pip.conf") == [
        "docker", "build", "--file", "/ctx/Dockerfile", "--platform", "linux/amd64", "--secret", "id=pip,src=/pip.conf",
        "--build-arg", f"BASE_IMAGE={BASE}", "--tag", f"127.0.0.1:5000/env:{recipe.tag}", "/ctx",
    ]  # fmt: skip


def test_buildah_is_called_so(recipe):
    command = dockerfile.buildah_build(recipe, "/ctx", local="localhost/b:1", authfile="/auth", pip_config="/pip.conf")
    assert command == [
        "buildah", "build", "--isolation", "chroot", "--format", "oci", "--timestamp", "0", "--tls-verify=true",
        "--authfile", "/auth", "--platform", "linux/amd64", "--secret", "id=pip,src=/pip.conf",
        "--build-arg", f"BASE_IMAGE={BASE}", "--file", "/ctx/Dockerfile", "--tag", "localhost/b:1", "/ctx",
    ]  # fmt: skip
    assert dockerfile.buildah_push(recipe, local="localhost/b:1", authfile="/auth", digest_file="/digest") == [
        "buildah", "push", "--tls-verify=false", "--authfile", "/auth", "--digestfile", "/digest",
        "localhost/b:1", f"docker://127.0.0.1:5000/env:{recipe.tag}",
    ]  # fmt: skip


def test_buildctl_is_called_so(recipe):
    command = dockerfile.buildctl_build(recipe, "/ctx", pip_config="/pip.conf", metadata="/meta", tls_folder="/certs")
    assert command == [
        "buildctl", "--tlsdir", "/certs", "build", "--progress", "plain", "--frontend", "dockerfile.v0",
        "--local", "context=/ctx", "--local", "dockerfile=/ctx", "--secret", "id=pip,src=/pip.conf",
        "--opt", "filename=Dockerfile", "--opt", "platform=linux/amd64", "--opt", f"build-arg:BASE_IMAGE={BASE}",
        "--opt", "attest:sbom=", "--opt", "attest:provenance=mode=max",
        "--import-cache", "type=registry,ref=127.0.0.1:5000/env:cache",
        "--export-cache", "type=registry,ref=127.0.0.1:5000/env:cache,mode=max",
        "--output", f"type=image,name=127.0.0.1:5000/env:{recipe.tag},push=true", "--metadata-file", "/meta",
    ]  # fmt: skip


def test_pip_takes_wheels_alone_and_by_hash():
    command = pip_layer.pip_command("/lock", "/site")
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps", "--no-compile", "--no-cache-dir"} < set(command)
    assert command[-4:] == ["--target", "/site", "--requirement", "/lock"]


def test_the_context_holds_what_the_dockerfile_copies_and_nothing_else(recipe, bench):
    folder = bench.context(recipe)
    assert sorted(path.name for path in folder.iterdir()) == ["Dockerfile", "gangline", "requirements.lock"]
    assert (folder / "gangline/keeper/main.py").is_file()
    assert not list(folder.rglob("__pycache__"))


def fake_tool(folder, name, text):
    tool = folder / "bin" / name
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(f"#!{sys.executable}\n{text}")
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:{os.environ['PATH']}", "HOME": str(folder)}


def test_a_failed_tool_is_reported_by_its_last_lines(recipe, tmp_path):
    environ = fake_tool(tmp_path, "buildah", "print('step 3'); print('no space left'); raise SystemExit(125)")
    bench = BuildWorkspace(folder=tmp_path, log=tmp_path / "log", environ=environ)
    with pytest.raises(BuildError, match=r"buildah build ended with 125 .* step 3 \| no space left"):
        open_builder("buildah", environ).build(recipe, bench)


def test_a_tool_that_is_not_there_is_a_mistake_of_the_site(recipe, tmp_path):
    bench = BuildWorkspace(
        folder=tmp_path, log=tmp_path / "log", environ={"PATH": str(tmp_path), "HOME": str(tmp_path)}
    )
    with pytest.raises(ConfigError, match="wanted the program buildctl"):
        open_builder("buildkit", {}).build(recipe, bench)
    with pytest.raises(ConfigError, match=r"registry\.builder"):
        open_builder("kaniko", {})


def test_a_tool_that_hangs_ends_with_all_it_started(tmp_path):
    text = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    environ = fake_tool(tmp_path, "buildah", text.replace("'pid'", repr(str(tmp_path / "pid"))))
    bench = BuildWorkspace(folder=tmp_path, log=tmp_path / "log", environ=environ)
    with pytest.raises(BuildError, match="longer than 2 s"):
        bench.run(["buildah", "build"], timeout=2)
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_tools_see_no_secret_of_the_user_and_logs_keep_none_of_an_address(bench):
    bench.run([sys.executable, "-c", "import os; print(dict(os.environ), 'https://user:canary-7a@host/simple')"])
    assert "canary" not in bench.words()
    assert "https://host/simple" in bench.words()


def test_the_login_of_a_build_is_closed_to_others_and_gone_afterwards(recipe, bench, tmp_path):
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(
        '{"auths": {"127.0.0.1:5000": {"auth": "dXNlcjpwdw=="}, "other.example": {"auth": "dXNlcjpwdw=="}}}'
    )
    with bench.docker_config(recipe) as folder:
        config = folder / "config.json"
        assert stat.S_IMODE(config.stat().st_mode) == 0o600
        assert config.read_text() == '{"auths": {"127.0.0.1:5000": {"auth": "dXNlcjpwdw=="}}}'
    assert not config.exists()


def test_docker_reports_the_digest_of_its_own_push(recipe, tmp_path):
    text = 'import sys; print(\'["else.example/a@sha256:1", "127.0.0.1:5000/env@sha256:2"]\')'
    environ = fake_tool(tmp_path, "docker", text)
    assert open_builder("docker", environ).build(
        recipe, BuildWorkspace(folder=tmp_path, log=tmp_path / "l", environ=environ)
    ) == ("sha256:2")


@pytest.mark.row("P8")
@pytest.mark.parametrize("decoy", ["changed", "other name inside", "newer version only"])
def test_decoys_of_an_index_stop_the_build_before_anything_is_laid_out(decoy, bench, index, tmp_path):
    evil = make_wheel("spam", "1.0", body="import os; os.system('touch /tmp/owned')\n")[1]
    served = {
        "changed": (SPAM[0], evil),
        "other name inside": (SPAM[0], make_wheel("spum", "1.0")[1]),
        "newer version only": ("spam-99.0-py3-none-any.whl", make_wheel("spam", "99.0")[1]),
    }
    index.add(served[decoy])
    lock = tmp_path / "lock"
    lock.write_bytes(lock_of(SPAM))
    with pytest.raises(BuildError, match=r"pip|spam"):
        bench.run(pip_layer.pip_command(str(lock), str(tmp_path / "site")))
    assert not (tmp_path / "site").exists() or list((tmp_path / "site").iterdir()) == []


@pytest.mark.slow
@pytest.mark.row("P8", full="50 decoys")
def test_of_fifty_decoys_none_is_installed(bench, index, tmp_path):
    for number in range(50):
        good = make_wheel(f"pkg{number}", "1.0")
        index.add((good[0], make_wheel(f"pkg{number}", "1.0", body=f"evil = {number}\n")[1]))
        lock = tmp_path / f"lock{number}"
        lock.write_bytes(lock_of(good))
        with pytest.raises(BuildError, match=r"DO NOT MATCH|hash"):
            bench.run(pip_layer.pip_command(str(lock), str(tmp_path / f"site{number}")))
    assert not [path for path in tmp_path.glob("site*") if list(path.iterdir())]


@pytest.mark.parametrize(
    ("config", "python"),
    [
        (
            {"Labels": {pip_layer.PYTHON_LABEL: f"/usr/bin/python{pip_layer.MINOR}"}},
            f"/usr/bin/python{pip_layer.MINOR}",
        ),
        ({"Env": [f"PYTHON_VERSION={pip_layer.MINOR}.7"]}, f"/usr/local/bin/python{pip_layer.MINOR}"),
    ],
)
def test_a_base_says_where_its_python_is(config, python):
    assert pip_layer.base_python(Image(config={"config": config}, layers=()), "base") == python


@pytest.mark.parametrize(
    "config", [{}, {"Env": ["PYTHON_VERSION=2.7.18"]}, {"Labels": {pip_layer.PYTHON_LABEL: "python3"}}]
)
def test_a_base_of_another_python_is_refused(config):
    with pytest.raises(ConfigError, match=r"registry\.base base"):
        pip_layer.base_python(Image(config={"config": config}, layers=()), "base")
