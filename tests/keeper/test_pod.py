"""A pod from its environment to its last word: what it fetches, says, leaves behind."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.keeper.coordination.nodes import HEAD, KEY, poll
from tests.ports import free_port

from gangline.procfs import with_variable
from gangline.spec.data_source import DataFile, DataSource
from gangline.spec.gang.pod_output import PodLine, from_message, parse
from gangline.spec.gang.status import GangEnd
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.storage.open import open_store


@dataclass
class Pod:
    root: Path
    process: subprocess.Popen[bytes]

    def said(self) -> list[PodLine]:
        return [parse(line) for line in (self.root / "stdout").read_text().split("\n") if line]

    def texts(self, rank: int | None) -> list[str]:
        return [each.text for each in self.said() if each.text is not None and each.rank == rank]

    def events(self, kind: str) -> list[dict]:
        return [each.event for each in self.said() if each.event and each.event.get("event") == kind]

    def end(self) -> GangEnd:
        code = self.process.wait(60)
        end = from_message((self.root / "termination-log").read_text())
        assert end.exit_code == code
        return end

    def stderr(self) -> str:
        return (self.root / "stderr").read_text()


@pytest.fixture
def pods(tmp_path):
    """Function that starts pods of a gang of one; `again` uses the store of those before."""
    started: list[Pod] = []
    store = open_store(f"file:{tmp_path / 'store'}")

    def start(
        program: str = "print('hello')", *, ranks: int = 1, data: DataSource | None = None, **environ: str
    ) -> Pod:  # fmt: skip
        plan = Plan(
            run="r", project="p", name="ddp", run_prefix="runs/p/c/r",
            program=ProgramSpec(command=("python", "program.py")), strategy="ddp", mesh=Mesh(dp_replicate=ranks),
            steps=10,
            global_batch=ranks, micro_batch=1, checkpoint=CheckpointPolicy(every=5), data=data or DataSource(),
        )  # fmt: skip
        root = tmp_path / f"pod-{len(started)}"
        root.mkdir()
        (root / "key").write_bytes(KEY)
        layer = pack([LayerFile("program.py", (HEAD + textwrap.dedent(program)).encode())])
        variables = {
            "NODE_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0", "GANGLINE_RUN": "r", "GANGLINE_GANG": "r", "GANGLINE_HOME": str(root / "g" / "gang"),
            "GANGLINE_PLAN": put_blob(store, plan.to_json()), "GANGLINE_CODE": put_blob(store, layer),
            "GANGLINE_STORE": store.url, "GANGLINE_KEY_FILE": str(root / "key"), "GANGLINE_GRACE_SECONDS": "20",
            "GANGLINE_TERMINATION_LOG": str(root / "termination-log"), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1",
            "PATH": os.environ["PATH"], "TEST_POD": str(root),
        }  # fmt: skip
        with (root / "stdout").open("wb") as out, (root / "stderr").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "gangline.keeper.pod"], env=variables | environ, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        pod = Pod(root, process)
        started.append(pod)
        return pod

    start.store = store
    yield start
    for pod in started:
        pod.process.kill()
        pod.process.wait()
        poll(lambda pod=pod: not list(with_variable("TEST_POD", str(pod.root))))


def test_pod_fetches_trains_speaks_and_leaves_its_last_word(pods):
    program = """
    print("hello from", os.getcwd())
    with open(os.environ["GANGLINE_OUT"] + f"/ranks/{rank}.jsonl", "a") as events:
        for step in range(1, 4):
            events.write('{"event": "step", "rank": %d, "step": %d}\\n' % (rank, step))
        events.write('{"event": "done", "rank": %d}\\n' % rank)
    """
    pod = pods(program, ranks=2)
    end = pod.end()
    assert (end.exit_code, end.retry) == (0, "never"), pod.stderr()
    assert "cores" in pod.texts(None)[0], "the preflight is the first word"
    assert "locked memory" in pod.texts(None)[0]
    assert pod.texts(None)[1] == f"downloading plan and code from {pods.store.url}", "why nothing trains yet"
    code = pod.root / "g" / "code"
    for rank in (0, 1):
        assert any(text == f"hello from {next(code.iterdir())}" for text in pod.texts(rank))
    steps = [(event["rank"], event["step"]) for event in pod.events("step")]
    assert [step for rank, step in steps if rank == 0] == [1, 2, 3]
    assert [step for rank, step in steps if rank == 1][-1] == 3
    assert {event["rank"] for event in pod.events("done")} == {0, 1}
    assert [event["keeper"] for event in pod.events("generation_started")] == [0]
    assert [each.status.state for each in pod.said() if each.status][-1] == "ended"
    assert b"hello from" in pods.store.get("runs/p/c/r/logs/1.log").data
    assert (pod.root / "g" / "gang" / "plan.json").exists()


def test_a_pod_places_the_files_that_its_commit_names_by_digest_and_refuses_others(pods):
    key = put_blob(pods.store, b"rows of data")
    data = DataSource(tracked=(DataFile(path="data/train.csv", key=key, size_bytes=12),))
    program = "print('read', open('data/train.csv').read())"
    pod = pods(program, data=data)
    assert pod.end().exit_code == 0, pod.stderr()
    assert "read rows of data" in pod.texts(0)
    pods.store.put(key, b"other of data"[:12])
    end = pods(program, data=data).end()
    assert (end.exit_code, "data/train.csv should be" in end.reason) == (50, True)


def test_error_of_the_program_is_the_pods_own_with_evidence(pods):
    end = pods("print('broken by design'); sys.exit(31)").end()
    assert (end.exit_code, end.culprit, end.retry) == (30, 0, "never"), "a code of gangline is the program's own here"
    assert "ended with code 31, its program's own: broken by design" in end.reason
    assert "broken by design" in end.evidence["log"]


@pytest.mark.parametrize(
    ("variable", "value", "code", "words"),
    [
        ("GANGLINE_CODE", PREFIX + "0" * 64, 40, "found none"),
        ("GANGLINE_CODE", "code", 50, "wanted the key of a code layer"),
        ("GANGLINE_STORE", "s3://bucket", 10, "store.endpoint"),
        ("WORLD_SIZE", "no", 10, "WORLD_SIZE='no'"),
    ],
)
def test_what_goes_wrong_before_there_is_a_keeper_ends_as_a_keeper_would(pods, variable, value, code, words):
    pod = pods(**{variable: value, "GANGLINE_FETCH_SECONDS": "1"})
    end = pod.end()
    assert (end.exit_code, words in end.reason) == (code, True), end
    assert words in pod.stderr().splitlines()[-1]


def test_flipped_layer_is_refused_before_it_is_opened(pods):
    bad = PREFIX + "1" * 64
    pods.store.put(bad, b"something else")
    end = pods(GANGLINE_CODE=bad).end()
    assert end.exit_code == 50
    assert "digest" in end.reason


def test_pod_that_is_asked_to_leave_while_it_fetches_is_free(pods):
    pod = pods(GANGLINE_STORE="s3://bucket?endpoint=http://127.0.0.1:9", GANGLINE_STORE_CREDENTIALS_FILE="/dev/null")
    poll(lambda: pod.texts(None))
    pod.process.send_signal(signal.SIGTERM)
    end = pod.end()
    assert (end.exit_code, end.retry) == (143, "free")


def test_node_is_ready_while_all_its_ranks_have_joined(pods):
    port = free_port()
    pod = pods(
        """
        while not os.path.exists("go"): time.sleep(0.02)
        heartbeat.beat(0, "rendezvous")
        while os.path.exists("go"): time.sleep(0.02)
        """,
        GANGLINE_READY_PORT=str(port),
    )
    poll(lambda: is_open(port))
    assert all(is_open(port) for _ in range(200)), "its queue never fills"
    go = next((pod.root / "g" / "code").iterdir()) / "go"
    go.touch()
    poll(lambda: not is_open(port))
    assert pod.process.poll() is None, "a rank that joins again makes the node wait, not end"
    go.unlink()
    assert pod.end().exit_code == 0
    assert not is_open(port)


def test_replacement_continues_where_the_last_pod_of_its_gang_stopped_and_no_other(pods):
    program = """
    path = os.environ["GANGLINE_OUT"] + f"/ranks/{rank}.jsonl"
    if not os.path.exists(path): open(path, "a").write('{"event": "started", "gang": "r"}\\n')
    open(path, "a").write('{"event": "life"}\\n')
    open(os.environ["GANGLINE_OUT"] + "/metrics.jsonl", "a").write('{"step": 1}\\n')
    print("life")
    """
    assert pods(program).end().exit_code == 0
    assert pods(program).end().exit_code == 0
    store = pods.store
    assert store.get("runs/p/c/r/ranks/0.jsonl").data.count(b"life") == 2
    assert store.get("runs/p/c/r/metrics.jsonl").data.count(b"step") == 2
    assert store.get("runs/p/c/r/logs/0.log").data.splitlines().count(b"life") == 2
    other = pods(program, GANGLINE_GANG="r-2")
    assert other.end().exit_code == 0
    assert store.get("runs/p/c/r/ranks/0.jsonl").data.count(b"life") == 1
    assert other.texts(0).count("life") == 1, "what an earlier pod said is not said again"


def test_pod_of_a_gang_that_was_replaced_whole_begins_above_all_that_saved(pods):
    pods.store.put("runs/p/c/r/checkpoints/latest.json", b'{"step":7,"generation":4}')
    end = pods("print('generation', generation)").end()
    assert (end.exit_code, end.generation, end.restarts) == (0, 5, 0)
    assert end.ledger.keys() & {"restart"} == set(), "it started, it did not restart"


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
