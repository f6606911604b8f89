"""Environments of locks with the real uv: their content, made once and whole, and an error for every bad lock."""

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.attacks.test_lock_that_runs_code import source_archive
from tests.build.virtualenv.conftest import EGGS, SPAM
from tests.build.wheels import index, lock_of, make_wheel

from gangline.build.virtualenv import environments, find_environment, installation, rank_runtime, sweep_environments
from gangline.errors import BuildError, ConfigError, IntegrityError, StorageError
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import IndexTable

EVIL = "import pathlib; pathlib.Path({marker!r}).write_text('ran')\n"


def run(environment, *command, **environ):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_the_lock_says_is_what_its_python_imports(made):
    environment, _ = made
    code = "import spam, eggs, sys; print(spam.VERSION, eggs.VERSION, sys.prefix)"
    assert run(environment, environment.python, "-c", code) == f"1.0 2.0 {environment.folder}"
    assert {name: environment.manifest.packages[name] for name in ("spam", "eggs")} == {"spam": "1.0", "eggs": "2.0"}
    assert environment.source.startswith("requirements.txt: 2 packages, Python 3.")


def test_programs_of_its_packages_run_in_it(made):
    environment, _ = made
    assert run(environment, str(environment.folder / "bin" / "spam")) == "spam"


def test_the_rank_runtime_is_in_it_and_recorded_apart(made):
    environment, _ = made
    code = "import gangline.keeper.ipc.environment, gangline.train.api.program, gangline, importlib.metadata as m;"
    code += "print(gangline.__file__, m.version('gangline'))"
    where, version = run(environment, environment.python, "-c", code).split()
    assert Path(where).is_relative_to(environment.folder)
    assert {"gangline", "blake3", "stamina"} <= environment.manifest.added.keys()
    assert environment.manifest.added["gangline"] == version
    assert "spam" not in environment.manifest.added
    assert not (Path(where).parent / "cli").exists(), "what drivers alone need is no part of it"


def test_nothing_of_gangline_s_own_environment_is_seen_in_it(made):
    environment, _ = made
    done = subprocess.run(
        [environment.python, "-c", "import cattrs"], capture_output=True, check=False, cwd="/", env={}
    )
    assert b"No module named 'cattrs'" in done.stderr


def test_a_second_time_nothing_is_installed(made):
    environment, bench = made
    began = time.monotonic()
    again = bench.make(lock_of(SPAM, EGGS))
    assert time.monotonic() - began < 5
    assert (again.is_cached, again.folder) == (True, environment.folder)
    assert again.source.endswith(", cached")


def test_another_hash_is_another_environment(bench):
    other = make_wheel("spam", "1.0", body="stolen = True\n")
    assert bench.ask(lock_of(SPAM)).digest != bench.ask(lock_of(other)).digest


def test_no_folder_of_it_is_writable(made):
    environment, _ = made
    folders = [environment.folder, *(path for path in environment.folder.rglob("*") if path.is_dir())]
    assert {oct(path.stat().st_mode & 0o222) for path in folders} == {"0o0"}


@pytest.mark.row("P8")
def test_no_code_of_a_package_runs_while_it_is_installed(bench, tmp_path):
    marker = tmp_path / "ran"
    evil = make_wheel("evil", "1.0", files={"evil.pth": EVIL.format(marker=str(marker))})
    bench.add(evil)
    environment = bench.make(lock_of(evil))
    assert not marker.exists()
    run(environment, environment.python, "-c", "")
    assert marker.exists(), "it would have, had its Python been started"


@pytest.mark.row("P8")
@pytest.mark.parametrize("place", ["pyvenv.cfg", "PyVenv.cfg", "bin/python", "bin/python3.99", "made.json"])
def test_a_wheel_that_brings_a_file_of_the_environment_itself_is_refused(bench, place):
    """Python reads the one, gangline read the other; uv refuses most programs of that name by itself."""
    evil = make_wheel("evil", "1.0", files={f"evil-1.0.data/data/{place}": "home = /root\n"})
    bench.add(evil)
    with pytest.raises((IntegrityError, BuildError), match=f"{place} of evil-1.0|reserved name `python"):
        bench.make(lock_of(evil))
    assert bench.left == []


@pytest.mark.row("P8")
@pytest.mark.parametrize("place", ["bin/Python", "bin/pythonw3.exe", "pyvenv.cfg"])
def test_whatever_the_installer_lets_through_is_refused(tmp_path, place):
    """Another version of uv may know fewer names."""
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for folder in (site / "evil-1.0.dist-info", tmp_path / "bin"):
        folder.mkdir(parents=True)
    (site / "evil-1.0.dist-info" / "RECORD").write_text(f"evil/__init__.py,,\n../../../{place},sha256=x,3\n")
    (tmp_path / place).touch()
    with pytest.raises(IntegrityError, match=f"found {place} of evil-1.0; lock another version"):
        installation.refuse_reserved(tmp_path, site, lock="uv.lock")


@pytest.mark.row("P8")
def test_a_wheel_that_pretends_to_be_another_package_is_refused(bench):
    """What is installed is written into the record: only what was asked for is."""
    info = "evil-1.0.data/purelib/torch-2.15.0.dist-info"
    evil = make_wheel(
        "evil", "1.0", files={f"{info}/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n"}
    )
    bench.add(evil)
    with pytest.raises(IntegrityError, match="found torch, which another one brings"):
        bench.make(lock_of(evil))
    assert bench.left == []


def test_a_file_of_an_environment_says_nothing_about_it(bench):
    """Its manifest lies next to it: what packages write in it afterwards is not believed."""
    environment = bench.make(lock_of(EGGS))
    lie = '{"added":{},"base":"/evil","packages":{},"python":"9","schema":1,"seconds":0.0,"size_bytes":1}'
    environment.folder.chmod(0o755)
    (environment.folder / "made.json").write_text(lie)
    assert bench.make(lock_of(EGGS)).manifest == environment.manifest
    assert environment.manifest.base == str(Path(sys._base_executable).resolve())


@pytest.mark.row("P8")
def test_a_package_without_a_wheel_is_refused_by_name_and_not_built(bench, tmp_path):
    archive = source_archive(marker := tmp_path / "built")
    bench.add(("evil-1.tar.gz", archive))
    with pytest.raises(ConfigError, match=r"evil==1 has no wheel .*; pip wheel --no-deps evil==1 -w FOLDER"):
        bench.make(f"evil==1 --hash=sha256:{hashlib.sha256(archive).hexdigest()}".encode())
    assert not marker.exists()
    assert bench.left == []


def test_a_wheel_of_another_python_is_refused_by_name(bench):
    other = make_wheel("ham", "1.0", tag="cp27-none-any")
    bench.add(other)
    with pytest.raises(ConfigError, match=r"ham==1\.0 has no wheels with a matching Python"):
        bench.make(lock_of(other))


def test_a_hash_that_differs_is_refused_and_nothing_is_kept(bench):
    bench.add(make_wheel("spam", "1.0", body="stolen = True\n"))
    with pytest.raises(IntegrityError, match=r"spam-1\.0|spam==1\.0"):
        bench.make(lock_of(SPAM))
    assert bench.left == []


def test_two_versions_of_one_package_are_refused_by_line(bench):
    with pytest.raises(ConfigError, match=r"spam again, of which line 1 names 1\.0"):
        bench.ask(lock_of(SPAM, make_wheel("spam", "2.0")))


def test_a_lock_for_another_python_is_refused_by_name(bench):
    text = '[project]\nname = "p"\nversion = "1"\nrequires-python = "==3.37.*"\n'
    package = '[[package]]\nname = "p"\nversion = "1"\nsource = { virtual = "." }\n'
    lock = f'version = 1\nrequires-python = "==3.37.*"\n\n{package}'
    with pytest.raises(ConfigError, match=r"uv\.lock is for Python ==3\.37\.\*, gangline runs in 3\."):
        bench.ask(bench.lock({"uv.lock": lock, "pyproject.toml": text}))


def test_a_lock_for_a_python_that_ranks_cannot_have_is_refused(bench):
    with pytest.raises(ConfigError, match=r"is for Python ==3\.8\.\*, and gangline's rank runtime needs >=3\.11"):
        bench.ask(bench.lock({"requirements.txt": lock_of(SPAM).decode()}, python="3.8"))


def test_a_task_wants_torch_in_its_lock_and_a_command_does_not(bench):
    with pytest.raises(ConfigError, match=r"requirements\.txt has no torch"):
        bench.ask(lock_of(SPAM), for_task=True)
    with pytest.raises(ConfigError, match=r"gangline wants torch>=[0-9.]+, requirements\.txt has torch 1\.13\.1"):
        bench.ask(lock_of(make_wheel("torch", "1.13.1")), for_task=True)
    assert bench.ask(lock_of(make_wheel("torch", "1.13.1")))


def test_a_conflict_with_the_rank_runtime_is_named_before_anything_starts(bench):
    with pytest.raises(ConfigError, match=r"gangline wants stamina>=[0-9.]+, requirements\.txt has stamina 0\.1"):
        bench.ask(lock_of(make_wheel("stamina", "0.1")))
    below = rank_runtime.RankRuntime((rank_runtime.RuntimePackage("tenacity", "9", (("stamina", ">=8"),), True),), "")
    with pytest.raises(ConfigError, match=r"stamina, which .* needs, wants tenacity>=8, lock\.txt has tenacity 0\.1"):
        below.missing({"tenacity": "0.1"}, file="lock.txt")


def test_what_the_lock_has_of_the_runtime_the_lock_decides(bench):
    version = next(
        each.version for each in rank_runtime.rank_runtime_of(with_s3=False).packages if each.name == "stamina"
    )
    locked = make_wheel("stamina", version, body="LOCKED = True\n")
    bench.add(locked)
    environment = bench.make(lock_of(locked))
    assert run(environment, environment.python, "-c", "import stamina; print(stamina.LOCKED)") == "True"
    assert "stamina" not in environment.manifest.added


def test_a_lock_with_a_gangline_of_its_own_is_refused(bench):
    with pytest.raises(ConfigError, match="a gangline of its own"):
        bench.ask(lock_of(make_wheel("gangline", "9.9")))


def test_an_index_that_does_not_answer_may_be_asked_again(bench):
    bench.environ = {"PATH": os.environ["PATH"], "HOME": str(bench.folder), "UV_HTTP_RETRIES": "0"}
    bench.site = Site(index={"gone": IndexTable(url="http://127.0.0.1:9/simple", default=True)})
    with pytest.raises(StorageError, match="run again"):
        bench.make(lock_of(make_wheel("ham", "1.0")))
    assert bench.left == []


def test_a_full_disk_may_be_tried_again(bench, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "symlink_to", full)
    with pytest.raises(StorageError, match="No space left on device; make room"):
        bench.make(lock_of(SPAM))
    assert bench.left == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("error: Failed to install: x\n  Caused by: No space left on device (os error 28)", StorageError),
        ("error: HTTP status client error (401 Unauthorized) for url (https://index/simple/x/)", ConfigError),
        ("error: something that nobody has seen before", BuildError),
    ],
)
def test_refusals_of_uv_have_their_exit_codes(bench, tmp_path, said, kind):
    program = tmp_path / "uv"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'E'\n{said}\nE\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(kind, match=said.splitlines()[-1][:20].strip().partition("(")[0]):
        type(bench.uv())(str(program), {"PATH": "/usr/bin:/bin"}).run(folder=tmp_path, what="lock")


def test_what_a_killed_build_left_is_not_an_environment_and_goes(bench):
    asked = bench.ask(lock_of(SPAM))
    draft = bench.root / f".{asked.digest}.dead"
    (draft / "bin").mkdir(parents=True)
    half = bench.root / asked.digest
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "python").symlink_to(sys.executable)
    assert find_environment(asked, bench.root) is None
    environment = bench.make(lock_of(SPAM))
    assert not environment.is_cached
    assert bench.left == [asked.digest, f"{asked.digest}.json"]


def test_of_two_at_once_one_makes_it_and_the_other_waits_and_says_so(bench):
    asked = bench.ask(lock_of(SPAM))
    bench.root.mkdir()
    with (bench.root / f"{asked.digest}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waits = threading.Thread(target=bench.make, args=(lock_of(SPAM),))
        waits.start()
        patience = time.monotonic() + 30
        while not bench.said and time.monotonic() < patience:
            time.sleep(0.01)
        assert bench.said == ["waiting for another run that installs requirements.txt"]
        assert bench.left == []
    waits.join()
    assert bench.left == [asked.digest, f"{asked.digest}.json"]


def test_one_whose_python_is_gone_is_made_again(bench):
    environment = bench.make(lock_of(SPAM))
    folder = environment.folder / "bin"
    folder.chmod(0o755)
    (folder / "python").unlink()
    (folder / "python").symlink_to("/nowhere/python")
    assert not bench.make(lock_of(SPAM)).is_cached


def test_a_sweep_deletes_what_is_unused_and_reports_sizes(bench):
    environment = bench.make(lock_of(SPAM))
    long_ago = time.time() - 40 * 86_400
    os.utime(environment.folder.with_suffix(".lock"), (long_ago, long_ago))
    (dry,) = sweep_environments(bench.root, keep_seconds=86_400, dry_run=True)
    assert (dry.is_over, dry.deleted, dry.size_bytes) == (True, False, environment.manifest.size_bytes)
    assert 39 < dry.days < 41
    assert environment.folder.exists()
    bench.make(lock_of(SPAM))  # a use
    (used,) = sweep_environments(bench.root, keep_seconds=86_400, dry_run=False)
    assert (used.is_over, environment.folder.exists()) == (False, True)
    os.utime(environment.folder.with_suffix(".lock"), (long_ago, long_ago))
    (gone,) = sweep_environments(bench.root, keep_seconds=86_400, dry_run=False)
    assert (gone.deleted, environment.folder.exists()) == (True, False)
    assert sweep_environments(bench.root, keep_seconds=86_400, dry_run=False) == []


def test_a_sweep_leaves_what_is_being_made(bench):
    asked = bench.ask(lock_of(SPAM))
    draft = bench.root / f".{asked.digest}.now"
    draft.mkdir(parents=True)
    with (bench.root / f"{asked.digest}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        sweep_environments(bench.root, keep_seconds=0, dry_run=False)
        assert draft.exists()
    sweep_environments(bench.root, keep_seconds=0, dry_run=False)
    assert not draft.exists()


def test_a_package_for_one_python_is_not_taken_from_ours_for_another(monkeypatch):
    assert not next(
        each for each in rank_runtime.rank_runtime_of(with_s3=False).packages if each.name == "blake3"
    ).is_for_any
    assert next(
        each for each in rank_runtime.rank_runtime_of(with_s3=False).packages if each.name == "stamina"
    ).is_for_any
    assert "minio" in {each.name for each in rank_runtime.rank_runtime_of(with_s3=True).packages}
    assert "minio" not in {each.name for each in rank_runtime.rank_runtime_of(with_s3=False).packages}


def test_equal_runtimes_are_equal_wheels(tmp_path):
    packages = rank_runtime.rank_runtime_of(with_s3=False).packages
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    assert [sha for _, sha in rank_runtime.write_wheels(one, packages)] == [
        sha for _, sha in rank_runtime.write_wheels(two, packages)
    ]


def test_an_own_commit_s_packages_come_from_an_index_that_asks_who_we_are(bench):
    bench.environ = {"PATH": os.environ["PATH"], "HOME": str(bench.folder), "OURS": "me:open sesame"}
    with index() as served:
        ours = IndexTable(url=f"{served.url}/simple", credentials="secret:env:OURS")
        bench.site = Site(index={"our-own": ours})
        uv = bench.uv()
        assert uv.environ["UV_INDEX"] == f"our-own={served.url}/simple"
        assert uv.environ["UV_INDEX_OUR_OWN_USERNAME"] == "me"
        assert uv.environ["UV_INDEX_OUR_OWN_PASSWORD"] == "open sesame"
        served.add(private := make_wheel("private", "1.0"))
        environment = bench.make(lock_of(private))
        assert served.logins == {"me:open sesame"}
    assert environment.manifest.packages["private"] == "1.0"
    assert "sesame" not in "".join(bench.said) + environment.source


@pytest.mark.row("P8")
def test_a_fork_s_packages_never_come_by_our_credentials(bench):
    bench.environ = {"PATH": os.environ["PATH"], "OURS": "me:open sesame"}
    bench.site = Site(index={"our-own": IndexTable(url="https://index.example/simple", credentials="secret:env:OURS")})
    assert "sesame" not in str(bench.uv(is_own=False).environ)
    assert "UV_INDEX" not in bench.uv(is_own=False).environ


def test_a_password_that_uv_repeats_is_not_reported(bench, tmp_path):
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\necho cannot ask https://me:sesame@index >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(BuildError) as caught:
        type(bench.uv())(str(program), {"PATH": "/usr/bin:/bin"}, ("sesame",)).run(folder=tmp_path, what="lock")
    assert "sesame" not in str(caught.value)


def test_uv_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert environments.Uv.find({}).program, "that of the package"
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(ConfigError, match="pip install uv"):
        environments.Uv.find({"PATH": str(tmp_path)})
