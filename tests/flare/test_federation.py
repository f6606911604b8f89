"""A real federation on loopback: NVFlare's server and clients as processes, mutual TLS, sandboxed ranks of members."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from tests.flare.federation import ADMIN, federation_below, open_server
from tests.flare.offers import new_key, new_plan

from gangline import procfs
from gangline.errors import GateError
from gangline.federated.protocol import RoundCall
from gangline.flare.kit import SERVER, open_kit, read_states

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
WEIGHTS = {"weight": np.zeros((2, 4), np.float32), "bias": np.zeros(2, np.float32)}
SGD = {"elementwise": {"rule": "sgd", "lr": 0.5}}


@pytest.fixture
def federation(tmp_path_factory):
    pytest.importorskip("nvflare", reason="nvflare is not installed")
    with federation_below(tmp_path_factory.mktemp("federation")) as found:
        yield found


def ask(members, number, *, attempt=1, trains=True, weights=WEIGHTS, seconds=120.0):
    call = RoundCall(number=number, attempt=attempt, trains=trains, weights=weights, seconds=seconds)
    return members.ask(call)


def merged(weights, answers):
    changes = [each.change for each in answers.contributions]
    return {name: weights[name] + np.mean([each[name] for each in changes], axis=0) for name in weights}


def right(answers):
    sums = [each.metrics["accuracy"] for each in answers.contributions]
    return sum(each[0] for each in sums) / sum(each[1] for each in sums)


def test_three_members_train_two_rounds_once_each_has_approved(federation):
    key = new_key()
    for name in federation.names:
        federation.join(name, signer=None if name == "celle" else key)
        federation.start(name)
    members = federation.coordinate(key=key)
    administrator = threading.Thread(target=federation.approve_when_pending, args=("celle",))
    administrator.start()
    first = ask(members, 1)
    administrator.join()
    second = ask(members, 2, weights=merged(WEIGHTS, first))
    judged = ask(members, 3, trains=False, weights=merged(merged(WEIGHTS, first), second))
    members.close()
    assert first.members == second.members == judged.members == federation.names
    assert first.refused == second.refused == judged.refused == ()
    assert right(judged) > 0.8
    assert federation.processes["coordinator"].wait(60) == 0
    states = read_states(open_kit(federation.kits / "localhost", SERVER))
    assert [(each.name, each.state) for each in states] == [(name, "accepted") for name in federation.names]


def raw_job(folder, path, *, members, code=False):
    """A job of NVFlare that runs the executor `path` at members; with code of its own if asked for."""
    config = folder / "app/config"
    config.mkdir(parents=True)
    meta = {"name": folder.name, "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["server", *members]}}
    (folder / "meta.json").write_text(json.dumps(meta))
    workflow = {"id": "w", "path": "nvflare.app_common.workflows.global_model_eval.GlobalModelEval", "args": {}}
    executor = {"tasks": ["*"], "executor": {"path": path, "args": {}}}
    for side, content in (("server", {"workflows": [workflow]}), ("client", {"executors": [executor]})):
        plain = {"format_version": 2, "components": []} | content
        (config / f"config_fed_{side}.json").write_text(json.dumps(plain))
    if code:
        (folder / "app/custom").mkdir()
        (folder / "app/custom/theirs.py").write_text("print('CODE OF THE JOB')\n")
    return str(folder)


@pytest.mark.row("FL4")
def test_a_member_that_joined_takes_no_other_class_code_command_or_log(federation, tmp_path):
    """`bremen` has not joined: it shows that each of these is open before, and that the test can see it."""
    server = open_server(federation)
    federation.join("aachen")
    for name in ("aachen", "bremen"):
        federation.start(name)
    trainer = "nvflare.app_common.np.np_trainer.NPTrainer"
    jobs = {
        f"code-{name}": raw_job(tmp_path / f"code-{name}", trainer, members=[name], code=True)
        for name in ("aachen", "bremen")
    }
    jobs["other-aachen"] = raw_job(tmp_path / "other-aachen", trainer, members=["aachen"])
    jobs["other-bremen"] = raw_job(tmp_path / "other-bremen", "nvflare.no.such.Executor", members=["bremen"])
    orders = tmp_path / "orders.json"
    orders.write_text(json.dumps({"files": ["aachen", "bremen"], "jobs": jobs}))
    found = ask_admin(federation, orders)
    assert "invalid_request" in found["files"]["aachen"]
    assert "format_version" in found["files"]["bremen"]
    said = {name: each["job_deploy_detail"] for name, each in found["jobs"].items()}
    assert "aachen: NVFLARE_ERROR: BYOC not permitted" in said["code-aachen"]
    assert "bremen: OK" in said["code-bremen"]
    assert f"{trainer!r} at config path 'executors.#1.executor' is not in allow_list" in federation.log("aachen")
    assert "is not in allow_list" in federation.log("bremen")
    uploaded = logs_at(server, found["jobs"]["other-bremen"]["job_id"], "is not in allow_list", seconds=20.0)
    assert uploaded, "the log of a member that has not joined comes"
    assert not logs_at(server, found["jobs"]["other-aachen"]["job_id"], "is not in allow_list", seconds=5.0)


def ask_admin(federation, orders):
    """Answers of `tests.flare.admin`."""
    command = [sys.executable, "-m", "tests.flare.admin", str(federation.kits / ADMIN), "2", str(orders)]
    environ = federation.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    [line] = [each for each in done.stdout.splitlines() if each.startswith("ANSWER")]
    return json.loads(line.removeprefix("ANSWER"))


def logs_at(server, job, text, *, seconds):
    """Files of a server about `job` that hold a line of a client's log; waits, for they come after its end."""
    deadline = time.monotonic() + seconds
    while True:
        files = [path for path in server.rglob("*") if path.is_file() and job in str(path) and "/app" not in str(path)]
        found = [path for path in files if text.encode() in path.read_bytes()]
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


@pytest.mark.row("FL4")
def test_a_member_whose_settings_were_opened_again_does_not_start(federation):
    federation.join("aachen")
    path = federation.kits / "aachen/local/resources.json"
    plain = json.loads(path.read_text()) | {"allow_log_streaming": True}
    path.write_text(json.dumps(plain))
    federation.start("localhost")
    federation.start("aachen")
    assert federation.processes["aachen"].wait(60) != 0
    assert "allow_log_streaming: wanted false, found true" in federation.log("aachen")


def job_processes(folder):
    """NVFlare's job processes of one kit."""
    for pid in procfs.with_variable("GANGLINE_TEST_FEDERATION", str(folder.parents[3])):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if any(each.endswith(("worker_process", "runner_process")) for each in words) and str(folder) in words:
            yield pid


@pytest.mark.slow
@pytest.mark.row("FL6")
def test_a_client_and_a_server_and_a_coordinator_that_are_killed_cost_a_round_each(federation):
    key = new_key()
    for name in federation.names:
        federation.join(name, signer=key)
        federation.start(name)
    members = federation.coordinate(key=key, plan=replace(new_plan(layer_task="sums:Sums", steps=40), optimizer=SGD))
    assert ask(members, 1).members == federation.names

    for pid in job_processes(federation.kits / "aachen"):
        os.kill(pid, signal.SIGKILL)
    found = [ask(members, 2, attempt=attempt) for attempt in (1, 2)]
    assert [len(each.members) for each in found] in ([0, 3], [2, 2], [2, 3])

    server = federation.kits / "localhost/gangline/server"
    [pid] = [pid for pid in procfs.with_variable("GANGLINE_FEDERATION", str(server))
             if b"server_train" in Path(f"/proc/{pid}/cmdline").read_bytes()]  # fmt: skip
    os.kill(pid, signal.SIGKILL)
    found = [ask(members, 3, attempt=attempt) for attempt in (1, 2)]
    assert [len(each.members) for each in found] == [0, 3]

    federation.stop("coordinator")
    federation.start_coordinator()
    assert ask(members, 4).members == federation.names
    members.close()


@pytest.mark.slow
@pytest.mark.row("FL1")
def test_a_secure_sum_of_three_members_is_one_answer(federation):
    key = new_key()
    for name in federation.names:
        federation.join(name, signer=key)
        federation.start(name)
    plan = new_plan(layer_task="sums:Sums", secure_sum=True, clip_norm=10.0, quorum=3)
    members = federation.coordinate(key=key, plan=replace(plan, optimizer=SGD))
    first = ask(members, 1)
    judged = ask(members, 3, trains=False, weights=merged(WEIGHTS, first))
    members.close()
    for answers in (first, judged):
        [together] = answers.contributions
        assert together.members == federation.names
        assert set(together.metrics) == {"accuracy", "eval_loss"}
    assert right(judged) > right(first)


@pytest.mark.slow
@pytest.mark.row("FL5")
def test_a_member_that_is_over_budget_refuses_and_no_quorum_is_exit_60(federation):
    key = new_key()
    for name in federation.names:
        federation.join(name, signer=key, epsilon=1.0)
        federation.start(name)
    plan = new_plan(layer_task="sums:Sums", epsilon=4.0, clip_grad=1.0)
    members = federation.coordinate(key=key, plan=replace(plan, optimizer=SGD))
    with pytest.raises(GateError, match="wanted epsilon 4, found 1 left of 1"):
        ask(members, 1)
    assert all(federation.member(name).ledger.spent() == 0.0 for name in federation.names)


@pytest.mark.slow
@pytest.mark.row("FL5")
def test_private_members_train_and_pay_for_each_training_before_it(federation):
    key = new_key()
    for name in federation.names:
        federation.join(name, signer=key, epsilon=8.0)
        federation.start(name)
    plan = new_plan(layer_task="sums:Sums", epsilon=4.0, delta=1e-3, clip_grad=1.0)
    members = federation.coordinate(key=key, plan=replace(plan, optimizer=SGD))
    first = ask(members, 1)
    assert first.members == federation.names, federation.log("aachen")[-3000:]
    second = ask(members, 2, weights=merged(WEIGHTS, first))
    assert second.members == federation.names
    assert first.engine == "nvflare 2.9.0"
    assert first.spent.accountant == f"opacus {version('opacus')}"
    assert 0 < first.spent.epsilon < second.spent.epsilon < 4.0
    [ledger] = {tuple(map(federation.ledger_of(name).count, ("reserved", "training"))) for name in federation.names}
    assert ledger == (1, 2)
    assert {federation.member(name).ledger.spent() for name in federation.names} == {4.0}
    ledger = federation.kit("celle").own / "ledger.jsonl"
    ledger.rename(ledger.with_suffix(".kept"))
    ledger.mkdir()
    without = ask(members, 2, attempt=2, weights=merged(WEIGHTS, first))
    assert (without.members, without.refused) == (("aachen", "bremen"), (("celle", "error"),))
    members.close()


HOSTILE = """
import os, sys
if os.environ.get("HOSTILE") and any("worker_process" in each for each in sys.orig_argv):
    import pickle
    import numpy as np
    from nvflare.apis.shareable import Shareable
    from gangline.flare import executor
    from gangline.flare.wire import read_call, answer_payload
    from gangline.federated.protocol import Contribution

    honest = executor.MemberExecutor.execute

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        if task_name == "offer":
            return honest(self, task_name, shareable, fl_ctx, abort_signal)
        call = read_call(shareable)
        answer = Contribution(members=("x",), weight=1.0, change=dict(call.weights), loss=0.5, metrics={})
        found = answer_payload(call, answer, spent=None)
        if call.number == 1:
            found["change"] = b"0" * 400_000_000
        elif call.number == 2:
            found["change"] = np.zeros(100_000_000, np.float32)
        elif call.number == 3:
            found["change"] = pickle.dumps(call.weights)
        else:
            found = {"refused": {"a": 1}, "answer": 7}
        return Shareable(found)

    executor.MemberExecutor.execute = execute
"""


@pytest.mark.slow
def test_a_hostile_member_is_refused_and_the_others_go_on(federation, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HOSTILE)
    key = new_key()
    for name in federation.names:
        federation.join(name, signer=key)
    federation.start("aachen", HOSTILE="1", PYTHONPATH=str(tmp_path))
    federation.start("bremen")
    federation.start("celle")
    members = federation.coordinate(key=key, plan=replace(new_plan(layer_task="sums:Sums", steps=40), optimizer=SGD))
    others = ("bremen", "celle")
    huge = ask(members, 1, seconds=60.0)
    assert huge.members == others
    array = ask(members, 2, seconds=15.0)
    assert array.members == others
    pickled = ask(members, 3, seconds=15.0)
    assert (pickled.members, pickled.refused) == (others, (("aachen", "shape"),))
    nonsense = ask(members, 4, seconds=15.0)
    assert (nonsense.members, nonsense.refused) == (others, (("aachen", "error"),))
    server = federation.kits / "localhost/gangline/server"
    peaks = [procfs_peak(pid) for pid in procfs.with_variable("GANGLINE_FEDERATION", str(server))]
    assert max(peaks) < 600 << 20, "what was sent was never taken"
    members.close()


def procfs_peak(pid):
    """Largest resident size that a process had, in bytes."""
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
