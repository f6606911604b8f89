"""Which processes of a rank failed though the rank ended with 0: every way to start one, and every way to end it."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gangline.keeper.ranks.process_tree import ProcessTree
from gangline.procfs import state
from gangline.spec.processes import ProcessFailure
from gangline.train.startup import report_file


@dataclass
class Watched:
    """A program that ran as a rank, and what its processes reported."""

    code: int
    output: str
    lines: list[dict]
    tree: ProcessTree

    @property
    def failures(self) -> list[ProcessFailure]:
        return self.tree.failures(before=time.monotonic())

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.failures]

    @property
    def unseen(self) -> set[str]:
        vanished = self.tree.vanished(lambda pid: state(pid) not in (None, "Z"))
        return {each.program for each in (*self.tree.unseen, *vanished)}


@pytest.fixture
def watch(workspace):
    """Run a command as a rank; files of the commit lie in `workspace.code`."""

    def run(text: str, *command: str, is_full: bool = False, **own: str) -> Watched:
        (workspace.code / "train.py").write_text(text)
        report = workspace.code.parent / "processes.jsonl"
        if not is_full:
            report.unlink(missing_ok=True)
        environ = workspace.environ(GANGLINE_PROCESSES=str(report), **own)
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
        process = subprocess.Popen(
            command or ("python", "train.py"), cwd=workspace.code, env=environ, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        output, _ = process.communicate(timeout=60)
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.is_file() else []
        return Watched(process.returncode, output, lines, ProcessTree(0, process.pid, lines))

    return run


WORKERS = """
import multiprocessing as mp, os, signal, sys
def work(how):
    if how == "raise": raise RuntimeError("its shard is missing")
    if how == "exit": sys.exit(3)
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "_exit": os._exit(5)
if __name__ == "__main__":
    context = mp.get_context({method!r})
    workers = [context.Process(target=work, args=(how,)) for how in ("well", {how!r})]
    [each.start() for each in workers]
    [each.join() for each in workers]
    print("trained")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("raise", "ended with code 1: RuntimeError: its shard is missing"), ("exit", "ended with code 3"),
        ("kill", "ended by signal 9"), ("_exit", "ended with code 5"),
    ],
)  # fmt: skip
def test_a_worker_that_fails_is_reported_however_it_was_started_and_ends(watch, method, how, end):
    done = watch(WORKERS.format(method=method, how=how))
    assert done.code == 0, done.output
    (failure,) = done.failures
    assert failure.program == "train.py"
    assert failure.text.endswith(f"of train.py on rank 0 {end}") or failure.text == f"train.py on rank 0 {end}"
    assert done.output.endswith("trained\n")
    assert done.unseen == set()


FIT = "raise RuntimeError('its shard is missing')\n"
RUN = "import os, subprocess, sys\n"


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run([sys.executable, 'fit.py'])",
        "subprocess.call(['python', '-u', 'fit.py'])",
        "subprocess.Popen(['python', 'fit.py']).wait()",
        "subprocess.run('python fit.py', shell=True)",
        "os.system('python fit.py')",
        "os.waitpid(os.posix_spawnp('python', ['python', 'fit.py'], os.environ), 0)",
        "os.spawnlp(os.P_WAIT, 'python', 'python', 'fit.py')",
        "os.fork() or os.execlp('python', 'python', 'fit.py')\nos.wait()",
        "os.fork() or os.execlp('python', 'python', 'fit.py')\nos.waitid(os.P_ALL, 0, os.WEXITED)",
        "import asyncio\nfrom asyncio import create_subprocess_exec as create\n"  # noqa: ISC004
        "async def main(): await (await create('python', 'fit.py')).wait()\nasyncio.run(main())",
        "subprocess.run(['python', '-m', 'fit'])",
        "subprocess.run(['timeout', '60', 'python', 'fit.py'])",
    ],
)  # fmt: skip
def test_a_python_that_fails_is_reported_once_however_it_is_started(watch, workspace, start):
    (workspace.code / "fit.py").write_text(FIT)
    done = watch(RUN + start + "\nprint('trained')\n")
    assert done.output.endswith("trained\n")
    (failure,) = done.failures if "spawnlp" not in start else done.failures[:1]  # a fork by `os`, and what it became
    assert failure.said == "RuntimeError: its shard is missing"
    assert failure.program in ("fit.py", "fit", "timeout")


@pytest.mark.parametrize(
    ("start", "text"),
    [
        ("subprocess.run(['./fit', '--fast'])", "fit --fast on rank 0 ended with code 3"),
        ("subprocess.run(['bash', './fit', '--fast'])", "fit ./fit --fast on rank 0 ended with code 3"),
        ("subprocess.run(['bash', '-c', 'kill -9 $$'])", "bash -c kill -9 $$ on rank 0 ended by signal 9"),
        ("subprocess.run([sys.executable, '-I', '-c', 'import os; os._exit(4)'])", "ended with code 4"),
        ("os.system('exit 6')", "ended with code 6"),
    ],
)
def test_another_program_that_fails_is_reported_by_the_python_that_waits_for_it(watch, workspace, start, text):
    (workspace.code / "fit").write_text("#!/bin/sh\nexit 3\n")
    (workspace.code / "fit").chmod(0o755)
    (found,) = watch(RUN + start).texts
    assert found.endswith(text)


CHAIN = "import subprocess, sys; subprocess.run([sys.executable, '{}'], check={})"


def test_a_failure_that_the_starter_took_as_its_own_counts_once_and_one_that_it_passed_over_counts(watch, workspace):
    (workspace.code / "fit.py").write_text(FIT)
    (workspace.code / "middle.py").write_text(CHAIN.format("fit.py", True))
    done = watch(CHAIN.format("middle.py", False))
    assert [each.program for each in done.failures] == ["middle.py"]
    assert done.tree.first_failure(since=0.0).said == "RuntimeError: its shard is missing"
    assert watch(CHAIN.format("middle.py", True)).code == 1
    (workspace.code / "middle.py").write_text(CHAIN.format("fit.py", False))
    assert [each.program for each in watch(CHAIN.format("middle.py", True)).failures] == ["fit.py"]


ORDERED = """
import multiprocessing as mp, os, signal, subprocess, sys, time
def wait(): time.sleep(60)
def pool_of_processes():
    with mp.get_context("spawn").Pool(2) as pool: pool.map(abs, range(4))
def executor():
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(2) as pool: list(pool.map(abs, range(4)))
def daemon():
    mp.get_context("fork").Process(target=wait, daemon=True).start()
def terminated_by_a_forkserver():
    worker = mp.get_context("forkserver").Process(target=wait); worker.start(); worker.terminate(); worker.join()
def killed(): subprocess.Popen(["sleep", "60"]).kill()
def too_late():
    try: subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=1)
    except subprocess.TimeoutExpired: pass
def group_is_killed():
    process = subprocess.Popen("python -c 'import time; time.sleep(60)' && true", shell=True, start_new_session=True)
    time.sleep(1); os.killpg(process.pid, signal.SIGTERM); process.wait()
def interrupted():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(1); process.send_signal(signal.SIGINT); process.wait()
def missing():
    try: subprocess.run(["not-there"])
    except OSError: pass
def tools():
    subprocess.run(["git", "rev-parse", "HEAD"]); os.system("nvidia-smi"); subprocess.run(["false"])
    subprocess.run("nvidia-smi -q | grep Driver", shell=True); subprocess.run(["gcc", "--no-such-option"])
def handled():
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(1) as pool:
        try: pool.submit(int, "x").result()
        except ValueError: pass
def raised_and_caught():
    try: raise SystemExit(3)
    except SystemExit: pass
def printed():
    import traceback
    try: raise ValueError("caught")
    except ValueError: traceback.print_exc()
def exits_well(): mp.get_context("fork").Process(target=sys.exit).start()
if __name__ == "__main__":
    globals()[sys.argv[1]]()
"""
NAMES = [line.split()[1].partition("(")[0] for line in ORDERED.splitlines() if line.startswith("def ")][1:]


@pytest.mark.parametrize("name", NAMES)
def test_ends_that_a_program_ordered_and_probes_of_tools_are_no_failures(watch, name):
    done = watch(ORDERED, "python", "train.py", name)
    assert (done.code, done.texts, done.unseen) == (0, [], set()), done.output


THREAD = """
import os, threading
def work(): raise ValueError("no rows")
{}
"""


def test_a_thread_that_ends_by_an_exception_in_code_of_the_commit_is_a_failure(watch):
    start = "thread = threading.Thread(target=work, name='reader'); thread.start(); thread.join()"
    done = watch(THREAD.format(start))
    assert done.texts == ["reader of train.py on rank 0 ended by an exception: ValueError: no rows"]
    assert watch(THREAD.format("threading.Thread(target=int, args=('x',)).start()")).texts == []
    assert watch(THREAD.format(f"{start}\nraise ValueError('no rows')")).code == 1


ODD = """
import sys
sys.excepthook = lambda *_: print("sorry")
class Odd(Exception):
    def __str__(self): raise ValueError
raise Odd("x")
"""


def test_an_exception_is_reported_though_the_program_has_an_excepthook_of_its_own(watch, workspace):
    (workspace.code / "fit.py").write_text(ODD)
    (failure,) = watch(CHAIN.format("fit.py", False)).failures
    assert failure.said == "Odd"


@pytest.mark.parametrize(
    ("script", "code", "failed", "unseen"),
    [
        ("python fit.py; python well.py", 0, ["fit.py"], ["bash"]),
        ("python fit.py | cat", 0, ["fit.py"], ["bash"]),
        ("python fit.py & wait; true", 0, ["fit.py"], ["bash"]),
        ("python dies.py; python well.py", 0, [], ["dies.py"]),
        ("python dies.py & wait; true", 0, [], ["dies.py"]),
        ("python well.py && python well.py", 0, [], []),
        ("if python fit.py; then true; fi", 0, ["fit.py"], []),
    ],
)
def test_pythons_below_a_shell_report_by_themselves_and_those_that_do_not_come_to_their_end_are_missed(
    watch, workspace, script, code, failed, unseen
):
    (workspace.code / "fit.py").write_text(FIT)
    (workspace.code / "dies.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    (workspace.code / "well.py").write_text("import os; os.system('true')")
    done = watch("", "bash", "-c", script)
    assert done.code == code, done.output
    assert [each.program for each in done.failures] == failed
    assert done.unseen == {each for each in unseen if each != "bash"}, "the text of a rank's own shell is judged later"


@pytest.mark.parametrize(
    ("command", "unseen"),
    [
        ("['bash', 'all.sh']", ["all.sh"]), ("['bash', 'strict.sh']", []), ("['./all.sh']", ["all.sh"]),
        ("'./fit one; ./fit two', shell=True", ["sh"]), ("'./fit one && ./fit two', shell=True", []),
        ("['bash', '-ec', './fit one; ./fit two']", []), ("['bash', 'not-there.sh']", ["not-there.sh"]),
        ("['make', 'all']", ["make"]), ("['./fit', 'one']", []), ("['timeout', '9', './fit', 'one']", []),
    ],
)  # fmt: skip
def test_programs_that_may_hide_the_failures_of_others_are_named(watch, workspace, command, unseen):
    files = {
        "fit": "#!/bin/sh\ntrue\n", "all.sh": "#!/bin/bash\n./fit one\n./fit two\n",
        "strict.sh": "set -euo pipefail\n./fit one | cat\n./fit two\n", "Makefile": "all:\n\t-./fit one\n",
    }  # fmt: skip
    for name, text in files.items():
        (workspace.code / name).write_text(text)
        (workspace.code / name).chmod(0o755)
    done = watch(f"import subprocess; subprocess.run({command})")
    assert done.unseen == set(unseen)
    assert [each.program for each in done.failures] == [each for each in unseen if each == "not-there.sh"]


def test_what_an_installed_package_starts_is_for_the_package_to_judge_unless_it_is_python(watch, workspace):
    packages = workspace.outside / "site-packages"
    packages.mkdir()
    (packages / "probing.py").write_text("import subprocess; run = subprocess.run\ndef probe(*words): run(words)\n")
    (workspace.code / "fit").write_text("#!/bin/sh\nexit 3\n")
    (workspace.code / "fit").chmod(0o755)
    (workspace.code / "fit.py").write_text(FIT)
    path = f"{workspace.environ()['PYTHONPATH']}:{packages}"
    assert watch("import probing; probing.probe('./fit')", PYTHONPATH=path).failures == []
    (found,) = watch("import probing; probing.probe('python', 'fit.py')", PYTHONPATH=path).failures
    assert found.program == "fit.py"


RESTARTS = """
import os, subprocess, sys
for count in range(2):
    environ = os.environ | {"TORCHELASTIC_RESTART_COUNT": str(count)}
    subprocess.run([sys.executable, "fit.py"], env=environ)
"""


def test_workers_that_torch_distributed_run_started_again_are_listed_apart_from_those_that_stayed_dead(
    watch, workspace
):
    (workspace.code / "fit.py").write_text("import os; assert os.environ['TORCHELASTIC_RESTART_COUNT'] > '0', 'rows'")
    done = watch(RESTARTS)
    assert done.failures == []
    assert [each.said for each in done.tree.restarted(before=time.monotonic())] == ["AssertionError: rows"]
    (workspace.code / "fit.py").write_text(FIT)
    assert len(watch(RESTARTS).failures) == 1


def test_a_report_that_is_full_says_so(watch, workspace):
    line = json.dumps({"event": "excused", "pid": 1, "what": "x" * 900}) + "\n"
    (workspace.code.parent / "processes.jsonl").write_text(line * (report_file.MOST_BYTES // len(line)))
    done = watch(RUN + "for _ in range(9): subprocess.run([sys.executable, '-c', '1 / 0'])", is_full=True)
    assert "the report of processes was full" in [each.why for each in done.tree.unseen]
    assert (workspace.code.parent / "processes.jsonl").stat().st_size <= report_file.FULL_BYTES


def test_a_program_that_breaks_what_the_watch_uses_goes_on(watch):
    done = watch(
        "import os, subprocess\nos.getppid = os.getpgrp = None\nsubprocess.run(['sh', '-c', 'exit 3'])\n"
        "os.waitstatus_to_exitcode(os.system('exit 2'))\nprint('trained')\n"
    )
    assert (done.code, done.output) == (0, "trained\n")


def test_a_report_that_has_no_place_changes_nothing_of_the_program(watch, workspace):
    report = workspace.code.parent / "processes.jsonl"
    done = watch(
        f"import os\nos.unlink({str(report)!r})\nos.mkdir({str(report)!r})\nos.system('exit 3')\nprint('trained')"
    )
    assert (done.code, done.output) == (0, "trained\n")


def programs(words: Sequence[str]) -> str:
    from gangline.train.startup.processes import own_program

    return own_program(list(words))


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["python", "src/fit.py", "-m", "x"], "fit.py"), (["python", "-uW", "ignore", "-X", "dev", "fit.py"], "fit.py"),
        (["python", "-m", "pkg.fit"], "pkg.fit"), (["python", "-Bmpkg.fit"], "pkg.fit"),
        (["python", "-c", "1"], "python -c"),
        (["python", "--check-hash-based-pycs", "always", "fit.py"], "fit.py"), (["python"], "python"),
        (["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(3)", "--multiprocessing-fork"], ""),
        (["python", "-m", "joblib.externals.loky.backend.popen_loky_posix", "--process-name"], ""),
    ],
)  # fmt: skip
def test_a_program_is_called_by_its_script_or_module(words, program):
    assert programs(words) == program
