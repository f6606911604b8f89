"""Which programs a program starts: known by their files, not by their names, without the tools of the system."""

import os
import sys
from pathlib import Path

import pytest

from gangline.train.startup import audit

READ = "import os; labels = open(os.environ['OUTSIDE'] + '/labels.txt').read()\n"


@pytest.mark.parametrize(
    "start",
    [
        "import subprocess; subprocess.run(['cat', labels])",
        "import subprocess; subprocess.run(['/bin/cat', labels], env={}, cwd='/')",
        "import subprocess; subprocess.run('cat ' + labels, shell=True)",
        "os.system('cat ' + labels)",
        "os.posix_spawnp('cat', ['cat', labels], os.environ)",
        "os.spawnlp(os.P_WAIT, 'cat', 'cat', labels)",
        "os.execvp('cat', ['cat', labels])",
    ],
)
def test_a_program_that_is_started_is_reported_once_however_it_is_started(workspace, start):
    done = workspace.run(f"import os; labels = os.environ['OUTSIDE'] + '/labels.txt'\n{start}\n{start}\n")
    assert "0 1 2" in done.stdout, done.stderr
    assert set(workspace.programs()) == {"cat"}
    assert len(workspace.programs()) == (2 if "spawnlp" in start else 1)  # these are started by two forks


def test_what_a_shell_makes_of_more_than_words_is_the_shells(workspace):
    assert (
        workspace.run("import os; os.system('cat $OUTSIDE/labels.txt; true'); os.system('exec cat')\n").returncode == 0
    )
    assert workspace.programs() == ["sh"]


def test_a_python_that_reports_by_itself_is_not_a_program_of_another_kind(workspace):
    (workspace.code / "script").write_text(f"#!{sys.executable} -u\n{READ}")
    (workspace.code / "script").chmod(0o755)
    text = (
        "import subprocess, sys\nfor each in ([sys.executable, '-uW', 'ignore', '-c', '1'], ['./script']):\n"
        "    subprocess.run(each, check=True)\n"
    )
    done = workspace.run(text)
    assert done.returncode == 0, done.stderr
    assert workspace.programs() == []
    assert len(workspace.lines("python")) == 3
    assert len(workspace.lines("read")) == 1


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        ("'-I'", "None"), ("'-uE'", "None"), ("'-W', 'ignore', '-S'", "None"), ("", "{}"),
        ("", "os.environ | {'PYTHONPATH': '.'}"),
    ],
)  # fmt: skip
def test_a_python_that_reads_no_path_is_a_program_that_reports_nothing(workspace, words, environ):
    command = f"[sys.executable, {words or repr('-u')}, '-c', '1']"
    text = f"import os, subprocess, sys\nsubprocess.run({command}, env={environ})\n"
    assert workspace.run(text).returncode == 0
    assert workspace.programs() == [Path(sys.executable).name]


def test_tools_of_the_system_are_known_by_their_folder_and_not_by_their_name(workspace):
    text = (
        "import os, subprocess\nsubprocess.run(['uname']); os.system('mkdir -p out'); os.system('nvidia-smi')\n"
        "import platform; platform.processor(); import ctypes.util; ctypes.util.find_library('m')\n"
    )
    assert workspace.run(text).returncode == 0
    assert workspace.programs() == []
    (workspace.code / "uname").symlink_to("/bin/cat")
    assert workspace.run("import subprocess; subprocess.run(['./uname', 'program.py'])\n").returncode == 0
    assert workspace.programs() == ["uname"]


def test_git_is_a_tool_only_where_it_shows_no_files(workspace):
    workspace.run("import subprocess\nfor each in ('status', 'rev-parse'): subprocess.run(['git', each])\n")
    assert workspace.programs() == []
    workspace.run("import subprocess; subprocess.run(['git', 'clone', 'nowhere'])\n")
    assert workspace.programs() == ["git"]


def test_a_program_that_is_not_there_was_not_started(workspace):
    text = "import contextlib, subprocess\nwith contextlib.suppress(OSError): subprocess.run(['not-there'])\n"
    assert workspace.run(text).returncode == 0
    assert workspace.programs() == []


def test_names_of_programs_are_bounded(workspace):
    text = (
        "import os, subprocess\nfor n in range(30):\n    os.symlink('/bin/cat', f'{n:0200}')\n"
        "    subprocess.run([f'./{n:0200}', '/dev/null'], check=True)\n"
    )
    done = workspace.run(text)
    assert done.returncode == 0, done.stderr
    assert (len(workspace.programs()), len(workspace.programs()[0])) == (audit.MOST_PROGRAMS, 100)


def test_a_shell_that_is_the_rank_is_reported_by_the_python_that_it_starts(workspace):
    (workspace.code / "program.py").write_text("1\n")
    done = workspace.start(
        ["sh", "-c", f"cat $OUTSIDE/labels.txt; {sys.executable} program.py; true"], workspace.environ()
    )
    assert done.stdout == "0 1 2", done.stderr
    assert workspace.programs() == [Path("/bin/sh").resolve().name]


@pytest.mark.parametrize(("folder", "reported"), [("site-packages", []), ("of-the-repository", ["cat"])])
def test_what_torchs_compiler_starts_reads_no_data(workspace, folder, reported):
    """Its processes are given another PYTHONPATH."""
    packages = workspace.outside / folder
    (packages / "torch" / "_inductor").mkdir(parents=True)
    (packages / "torch" / "__init__.py").touch()
    (packages / "torch" / "_inductor" / "pool.py").write_text("import subprocess; subprocess.run(['cat', '/dev/null'])")
    path = os.pathsep.join([workspace.environ()["PYTHONPATH"], str(packages)])
    done = workspace.run("import torch._inductor.pool\n", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert workspace.programs() == reported
