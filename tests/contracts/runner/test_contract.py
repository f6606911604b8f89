"""What every runner of model code promises, on this machine and in pods."""

import json
import time
from functools import partial

import pytest

from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.storage.objects.code_layer import LayerFile, pack

pytestmark = [pytest.mark.row("P10"), pytest.mark.timeout(240)]


def job(program: str, **changes) -> ModuleJob:
    layer = pack([LayerFile("start.py", program.encode()), LayerFile("part/of.txt", b"code")])
    return ModuleJob(**{"module": "start", "code": layer, "seconds": 60.0, "trust": "own", **changes})


@pytest.fixture(autouse=True)
def nothing_is_left(stand):
    yield
    patience = time.monotonic() + 30
    while (left := stand.leftovers()) and time.monotonic() < patience:
        time.sleep(0.2)
    assert left == []


def test_output_error_and_code_come_apart(stand):
    program = "import sys\nprint('answer', flush=True); print('noise\\nthe reason', file=sys.stderr); sys.exit(31)"
    done = stand.runner.run(job(program))
    assert (done.exit_code, done.stdout, done.stderr) == (31, b"answer\n", b"noise\nthe reason\n")
    assert done.output_tail == "the reason"


def test_what_it_prints_is_never_taken_for_what_the_runner_says(stand):
    lines = "\\n".join(("\\x1eexit 0", "\\x1estdout AAAA", "\\x1estderr !", "\\x1eexit x"))
    done = stand.runner.run(job(f"import sys; print('{lines}'); sys.exit(3)"))
    assert (done.exit_code, done.stdout.count(b"\x1e")) == (3, 4)


def test_it_reads_code_arguments_and_files(stand, tmp_path):
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "large").write_bytes(b"x" * 100_000)
    (tmp_path / "one").write_text("one")
    for each in (tmp_path, *tmp_path.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    program = """
import json, os, pathlib, sys
read = lambda path: len(pathlib.Path(path).read_bytes())
print(json.dumps([sys.argv[1:], [read(each) for each in sys.argv[1:4]], pathlib.Path("part/of.txt").read_text()]))
"""
    arguments = ("../model/deep/large", "../one.txt", "../small.json", '$(HOME) $$ "quoted"')
    files = {"model": folder, "one.txt": tmp_path / "one", "small.json": b"{}"}
    done = stand.runner.run(job(program, arguments=arguments, files=files))
    assert json.loads(done.stdout) == [list(arguments), [100_000, 3, 2], "code"], done.stderr


def test_variables_of_the_line_are_there_and_change_nothing_of_the_runner(stand):
    program = "import os; print(*(os.environ[each] for each in ('OF_LINE', 'OMP_NUM_THREADS', 'PYTHONHASHSEED')))"
    env = {"OF_LINE": "a b", "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "7"}
    assert stand.runner.run(job(program, env=env)).stdout == b"a b 2 0\n"
    assert stand.runner.run(job(program.replace("'OF_LINE', ", ""))).stdout == b"1 0\n"


def test_without_code_it_is_a_module_of_gangline_in_an_empty_folder(stand):
    done = stand.runner.run(ModuleJob(module="gangline.units", seconds=60.0, trust="own"))
    assert (done.exit_code, done.stdout) == (0, b""), done.stderr


def test_time_that_is_up_is_reported(stand):
    began = time.monotonic()
    done = stand.runner.run(job("import time; print('here', flush=True); time.sleep(300)", seconds=2.0))
    assert (done.exit_code, done.stdout) == (None, b"here\n")
    assert time.monotonic() - began < 100


def test_death_by_a_signal_is_reported_as_a_shell_does(stand):
    assert stand.runner.run(job("import os; os.kill(os.getpid(), 9)")).exit_code == 137


def test_what_it_leaves_running_ends_with_it(stand):
    program = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    began = time.monotonic()
    assert stand.runner.run(job(program)).exit_code == 0
    assert time.monotonic() - began < 60


def test_much_output_is_cut_and_its_head_is_there(stand):
    program = (
        "import sys\nfor _ in range(80): sys.stdout.write('x' * 2**20); sys.stderr.write('e' * 2**17)\nprint('end')"
    )
    done = stand.runner.run(job(program))
    assert done.exit_code == 0
    assert 4 * 2**20 <= len(done.stdout) <= 64 * 2**20
    assert set(done.stdout) == {ord("x")}


def test_module_begins_with_an_environment_of_its_own(stand, monkeypatch):
    monkeypatch.setenv("FORGE_TOKEN", "canary")
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    environ = json.loads(stand.runner.run(job(program)).stdout)
    assert "canary" not in str(environ)
    assert environ["HOME"] != "/root"
    assert not [name for name in environ if "BUNDLE" in name or "CREDENTIAL" in name]


def test_a_forks_code_is_treated_alike(stand):
    run = partial(stand.runner.run, job("print(1)", trust="fork"))
    assert run().stdout == b"1\n"
