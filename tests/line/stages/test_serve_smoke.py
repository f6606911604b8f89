"""Smoke of a server: sandboxes, processes, requests and turns are real, the model is a stand-in that may cheat."""

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.infer import stub_server

from gangline import procfs
from gangline.errors import GateError, IntegrityError, TrainingError
from gangline.infer import smoke as smokes
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner
from gangline.line.gangs.infer_server import InferServer, ServedFolder
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.results.serve_gate import MEMORY, P99, PER_SECOND
from gangline.line.stages import publish_serve
from gangline.line.stages.publish_serve import ServeSmoke
from gangline.spec.config.infer_table import ServeGate, SiteInferTable
from gangline.spec.config.line import GateTable
from gangline.spec.config.site import Site
from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.train.model.golden import GOLDEN, Golden, golden_bytes

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CODE = pack([LayerFile("stub_server.py", Path(stub_server.__file__).read_bytes(), executable=False)])


@contextmanager
def started_stub(served, repo, *, site, environ, options, token):
    """A stand-in in the sandbox in which `gangline infer` starts KServe's server."""
    job = ModuleJob(
        module="stub_server", arguments=("../model", "--name", served.name, *options), code=served.code,
        files={"model": served.folder}, seconds=0, trust="own",
    )  # fmt: skip
    with ProcessRunner(lambda trust: sandbox_of(repo, trust, site=site, environ=environ)).start(job) as running:
        server = InferServer(running)
        server.order(token=token)
        yield server


@pytest.fixture
def struck(tmp_path, monkeypatch):
    """The smoke of a candidate, with a base or without, after few turns."""
    monkeypatch.setattr(smokes, "GROUPS", 4)
    monkeypatch.setattr(smokes, "num_groups", lambda *_: 4)
    monkeypatch.setattr(publish_serve, "started_server", started_stub)
    monkeypatch.setattr(publish_serve, "check_gates", refuse)
    site = Site(infer=SiteInferTable(max_request_bytes=5000))

    def server(name, mode):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mode.json").write_text(json.dumps(mode))
        if mode.get("golden", True):
            (folder / GOLDEN).write_bytes(golden_bytes(Golden({"x": X}, {"y": 2 * X})))
        return ServedFolder(folder=folder, code=CODE, name=name, version=1)

    def strike(candidate, base=None, **limits):
        commit = SimpleNamespace(base=base is not None and SimpleNamespace(run="run"))
        context = SimpleNamespace(
            record=SimpleNamespace(commit=commit), site=site, repo=tmp_path, environ={},
            line=SimpleNamespace(gate=GateTable(serve=ServeGate(**limits) if limits else None)),
        )  # fmt: skip
        own, other = server("candidate", candidate), base is not None and server("base", base)

        def found_base(self, model):
            if other is False:
                raise IntegrityError("no ancestor has passed")
            return other

        monkeypatch.setattr(ServeSmoke, "_candidate", lambda self, model, folder: own)
        monkeypatch.setattr(ServeSmoke, "_base", found_base)
        smoke = ServeSmoke(context, tmp_path / "work")
        try:
            smoke("candidate", own.folder)
        except GateError:
            assert smoke.gate.verdict == "no"
        assert not [each for each in procfs.children(os.getpid()) if "stub_server" in " ".join(procfs.command(each))]
        return smoke

    return strike


def refuse(record, *, require_base):
    """The rule of publishing that matters here."""
    del require_base
    if record.verdict == "no":
        raise GateError(record.reason)


@pytest.fixture(autouse=True)
def gate_alone(monkeypatch):
    monkeypatch.setattr(publish_serve, "_with_gate", lambda record, gate: gate)


def test_everything_is_measured_with_its_base(struck):
    smoke = struck({"seconds": 0.004}, {"seconds": 0.004}, worse_percent=400, p99_ms=1e5)
    assert smoke.metrics[P99].value >= 4
    assert smoke.metrics[P99].base_band.origin == "run"
    assert 20 < smoke.metrics[PER_SECOND].value < 250
    assert smoke.metrics[MEMORY].value > 5e6
    assert smoke.gate.verdict == "yes"
    assert "same machine, in turns" in smoke.gate.reason


def test_one_that_sleeps_longer_is_refused(struck):
    smoke = struck({"seconds": 0.02}, {"seconds": 0.005}, worse_percent=50)
    assert smoke.gate.verdict == "no"
    assert "longer than the base's" in smoke.gate.reason


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ({"shift": 0.5}, "golden sample is answered otherwise"),
        ({"malformed": 500}, "malformed request was answered with status 500"),
        ({"oversized": 200}, "answered with status 200, wanted 413"),
        ({"takes": []}, "good request was answered with status 400"),
        ({"garbage_after": 70}, "of 40 requests were answered otherwise"),
        ({"exit": 50}, "does not start as a server"),
    ],
)
def test_wrong_answers_refuse_the_candidate_without_any_limit(struck, mode, said):
    assert said in struck(mode).gate.reason


def test_a_candidate_that_does_not_start_ends_the_smoke_with_its_code(struck):
    with pytest.raises(TrainingError, match=r"does not start as a server: .*the model cannot be opened"):
        struck({"exit": 30})


def test_one_that_is_never_ready_is_ended(struck, monkeypatch):
    monkeypatch.setattr(publish_serve, "START_SECONDS", 1)
    with pytest.raises(TrainingError, match="not ready within 1 s"):
        struck({"silent": True})


def test_one_that_never_answers_is_ended(struck, monkeypatch):
    monkeypatch.setattr(publish_serve, "_SECONDS", 3)
    began = time.monotonic()
    with pytest.raises(TrainingError, match="did not end within 3 s"):
        struck({"drips": True})
    assert time.monotonic() - began < 40


@pytest.mark.parametrize(
    ("base", "said"),
    [({"exit": 30}, "the base does not start"), ({"takes": []}, "with status 400"), (None, "no ancestor has passed")],
)
def test_a_base_that_cannot_be_struck_is_unknown_never_a_pass(struck, base, said):
    smoke = struck({}, base, worse_percent=15)
    assert smoke.gate.verdict == "unknown"
    assert said in smoke.gate.reason
    assert smoke.metrics[P99].base is None


def test_a_version_without_golden_sample_is_struck_with_what_it_describes(struck):
    assert struck({"golden": False}).metrics[PER_SECOND].value > 1


@pytest.mark.parametrize("mode", [{"fork_bytes": 200 << 20}, {"hides_bytes": 200 << 20}], ids=["forked", "reset"])
def test_memory_counts_wherever_a_candidate_has_it(struck, mode):
    assert struck(mode | {"seconds": 0.01}).metrics[MEMORY].value > 200 << 20


def test_what_a_candidate_says_of_itself_is_no_figure(struck):
    smoke = struck({"boasts": {"per_second": 1e9, "turns": [[0.0] * 5] * 8, "memory_bytes": 1}, "seconds": 0.01})
    assert smoke.metrics[PER_SECOND].value < 150
    assert smoke.metrics[P99].value > 9
    assert smoke.metrics[MEMORY].value > 5e6


def test_no_process_of_a_candidate_runs_while_its_base_is_struck(struck, monkeypatch):
    states = {"candidate": set(), "base": set()}
    servers = []
    made, turn = smokes.Server.look, smokes.Caller.turn

    def look(self):
        made(self)
        servers.append(self) if self not in servers else None

    def seen(self, *arguments, **named):
        for each in servers:
            name = each.caller._path.rpartition("/")[2]
            if each.caller is not self:
                states[name] |= {procfs.state(pid) for pid in each.pids()}
        return turn(self, *arguments, **named)

    monkeypatch.setattr(smokes.Server, "look", look)
    monkeypatch.setattr(smokes.Caller, "turn", seen)
    struck({"seconds": 0.01}, {"seconds": 0.01}, worse_percent=400)
    assert states == {"candidate": {"T"}, "base": {"T"}}
