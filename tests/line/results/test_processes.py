"""The gate on processes: what refuses a run, what it does not know, and which words of a line excuse."""

import pytest
from tests.line import repositories

from gangline.errors import GateError
from gangline.line.results.processes import judge_processes, unseen_of_command
from gangline.registry.publish_rules import check_gates
from gangline.report.facts import verdict_text
from gangline.spec.processes import ProcessFailure, ProcessReport, UnseenProgram
from gangline.spec.run_flags import stage

FAILED = ProcessFailure(rank=1, program="fit.py", what="Process-2 of fit.py", how="code 1", said="ValueError: no rows")
MANY = ProcessReport(failed=(FAILED,), num_failed=9)
SCRIPT = UnseenProgram(program="run.sh", why="its failures are lost")


def report(*failed, **more):
    return ProcessReport(failed=failed, num_failed=sum(each.count for each in failed), **more)


@pytest.mark.parametrize(
    ("found", "may_fail", "verdict", "reason"),
    [
        (report(), (), "yes", "no process failed"),
        (report(pipefail=True), (), "yes", "no process failed; the shell of project.command ran with -o pipefail"),
        (
            report(FAILED), (), "no",
            f'{FAILED.text}; the rank ended with 0; if the program handles that, gate.may_fail = ["fit.py"] says so',
        ),
        (report(FAILED), ("f*.py",), "yes", f"no process failed but those that may: {FAILED.text}"),
        (report(unseen=(SCRIPT,)), (), "unknown", 'its failures are lost; gate.may_fail = ["run.sh"] accepts that'),
        (report(unseen=(SCRIPT,)), ("run.sh",), "yes", "no process failed"),
        (report(FAILED, unseen=(SCRIPT,)), (), "no", "Process-2 of fit.py"),
        (report(FAILED, unseen=(SCRIPT,)), ("fit.py",), "unknown", "run.sh: its failures are lost"),
        (report(restarted=(FAILED,)), (), "yes", "torch.distributed.run started again what had failed: Process-2"),
        (None, (), "unknown", "its gang did not report how its processes ended"),
        (MANY, ("fit.py",), "unknown", "8 processes failed that are not listed"),
        (MANY, (), "no", "; 8 more failed; "),
    ],
)  # fmt: skip
def test_a_failure_refuses_and_what_may_have_failed_unseen_is_unknown(found, may_fail, verdict, reason):
    gate = judge_processes(found, may_fail)
    assert (gate.name, gate.verdict) == ("processes", verdict)
    assert reason in gate.reason


FILES = {
    "run.sh": "python a.py\npython b.py\n", "strict.sh": "set -euo pipefail\npython a.py | tee log\npython b.py\n",
    "made.sh": "#!/usr/bin/env bash\n./a\n./b\n", "exact.sh": "#!/bin/bash -e\n./a\n./b\n",
    "fit.py": "#!/usr/bin/python3\n", "outer.sh": "set -euo pipefail\n./a\n./exact.sh\nbash run.sh\n",
    "whole.sh": "set -e\n. run.sh\n./exact.sh\nbash strict.sh\n", "loop.sh": "set -e\nbash loop.sh\n",
    "many.sh": "set -e\n" + "".join(f"bash -e {number}.sh\n" for number in range(30)),
    **{f"{number}.sh": "./a\n" for number in range(30)},
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "more", "unseen"),
    [
        (("python", "fit.py"), {}, []),
        (("python", "-I", "fit.py"), {"is_watched": False}, ["fit.py"]),
        (("./fit",), {"is_watched": False}, ["fit"]),
        (("mpirun", "-np", "2", "./fit"), {"is_watched": False}, []),
        ((), {}, []),
        (("bash", "run.sh"), {}, ["run.sh"]),
        (("bash", "strict.sh"), {"is_watched": False}, []),
        (("bash", "-e", "run.sh"), {"is_watched": False}, []),
        (("bash", "not-there.sh"), {}, ["not-there.sh"]),
        (("./made.sh",), {}, ["made.sh"]),
        (("exact.sh",), {"is_watched": False}, []),
        (("fit.py",), {}, []),
        (("sh", "-c", "python fit.py"), {}, []),
        (("sh", "-c", "cd src && python fit.py"), {"is_watched": False}, []),
        (("sh", "-c", "python fit.py | tee log"), {"is_watched": False}, ["sh"]),
        (("sh", "-c", "python fit.py | tee log"), {"is_watched": False, "pipefail": True}, []),
        (("sh", "-c", "python a.py; python b.py"), {"pipefail": True}, ["sh"]),
        (("bash", "-c", "python a.py & wait"), {"pipefail": True}, ["bash"]),
        (("bash", "-eo", "pipefail", "-c", "a | b; c"), {}, []),
        (("sh", "-c", "bash run.sh"), {}, ["sh"]),
        (("sh", "-c", "./made.sh && ./a"), {}, ["sh"]),
        (("sh", "-c", "if true; then bash run.sh; fi"), {}, ["sh"]),
        (("bash", "outer.sh"), {}, ["outer.sh"]),
        (("bash", "whole.sh"), {}, []),
        (("bash", "loop.sh"), {}, []),
        (("bash", "many.sh"), {}, ["many.sh"]),
        (("bash", "-ec", ". ./run.sh"), {}, []),
        (("bash", "-c", ". run.sh"), {}, ["bash"]),
        (("bash", "-ec", "source $HOME/run.sh"), {}, ["bash"]),
        (("bash", "-ec", "source env/bin/activate; ./a"), {}, []),
        (("bash", "-ec", "make all"), {}, ["bash"]),
        (("bash", "-ec", "eval ./a"), {}, ["bash"]),
        (("bash", "-eo", "pipefail", "-c", "./a > >(./b)"), {}, ["bash"]),
        (("bash", "-eo", "pipefail", "-c", "./a > >(tee log)"), {}, []),
    ],
)
def test_a_command_that_loses_failures_is_named_by_its_script(command, more, unseen):
    found = unseen_of_command(
        command, lambda path: FILES.get(path.removeprefix("./")), **{"pipefail": False, "is_watched": True} | more
    )
    assert [each.program for each in found] == unseen


WRITES = "import pathlib, subprocess, sys\npathlib.Path('model.pt').write_bytes(b'weights')\n"
FAILS = "subprocess.run([sys.executable, '-c', 'raise RuntimeError(\"its shard is missing\")'])\nprint('trained')\n"


def commit(workspace, script: str, *, gate: str = "", command: str = '["python", "answer.py"]') -> None:
    line = repositories.LINE.replace('["python", "answer.py"]', f'{command}\noutputs = ["*.pt"]')
    line += f'[publish]\nfiles = ["*.pt"]\n[gate]\n{gate}'
    repositories.commit(workspace.repo, {"answer.py": script, "line.toml": line})


@pytest.mark.long
def test_a_run_whose_process_failed_is_refused_and_named_in_its_record_and_notes_unless_the_line_excuses_it(workspace):
    commit(workspace, WRITES + FAILS)
    with pytest.raises(GateError, match="processes: python -c on rank 0 ended with code 1: RuntimeError: its shard is"):
        workspace.run()
    (record,) = workspace.records()
    assert record.run.verdict == "refused"
    assert stage(record, "publish").state == "skipped"
    said = "python -c on rank 0 ended with code 1: RuntimeError: its shard is missing; the rank ended with 0"
    assert said in workspace.seen.notes
    assert said in [event.text for event in record.events]
    commit(workspace, WRITES + FAILS, gate='may_fail = ["python -c"]\n')
    record = workspace.run()
    assert stage(record, "publish").state == "done"
    assert said not in [event.text for event in record.events]


@pytest.mark.long
def test_what_is_not_known_of_processes_lets_a_run_pass_and_publishes_nothing(workspace):
    commit(workspace, WRITES, command='["sh", "-c", "python answer.py; ls"]')
    with pytest.raises(GateError, match="gate processes says unknown: sh: a failure of a program that it runs may not"):
        workspace.run()
    (record,) = workspace.records()
    assert {gate.name: gate.verdict for gate in record.gates}["processes"] == "unknown"
    with pytest.raises(GateError, match="gate processes says unknown"):
        check_gates(record)
    commit(workspace, WRITES, command='["sh", "-c", "python answer.py | cat"]')
    record = workspace.run()
    assert stage(record, "publish").state == "done"
    assert "pipefail" in next(gate.reason for gate in record.gates if gate.name == "processes")
    assert verdict_text(record) == "passed, 1 gate could not judge"
