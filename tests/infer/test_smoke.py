"""Smoke of a server: processes, requests and turns are real, the model is a stand-in with the same command line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gangline import procfs
from gangline.errors import IntegrityError, TrainingError
from gangline.infer import smoke as smokes
from gangline.infer.smoke import main, smoke
from gangline.line.results.serve_gate import MEMORY, P99, PER_SECOND, judge_serve, serve_metrics
from gangline.spec.config.infer_table import ServeGate
from gangline.train.model.golden import GOLDEN, Golden, golden_bytes

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Options of a smoke whose servers are stand-ins, with few turns."""
    shutil.copy(Path(__file__).with_name("stub_server.py"), tmp_path / "stub_server.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(smokes, "GROUPS", 4)
    monkeypatch.setattr(smokes, "num_groups", lambda *_: 4)

    def server(name, **mode):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mode.json").write_text(json.dumps(mode))
        if mode.get("golden", True):
            (folder / GOLDEN).write_bytes(golden_bytes(Golden({"x": X}, {"y": 2 * X})))
        (tmp_path / f"{name}-code").mkdir()
        return {"name": name, "version": 1, "folder": str(folder), "code": str(tmp_path / f"{name}-code")}

    def options(candidate, base=None, **more):
        return {
            "module": "stub_server", "candidate": server("candidate", **candidate),
            "base": None if base is None else server("base", **base), "start_seconds": 20, "strike_seconds": 5,
            "max_request_bytes": 5000, **more,
        }  # fmt: skip

    return options


def verdict(answer, **limits):
    return judge_serve(ServeGate(**limits), answer, serve_metrics(answer, "run"))


def test_everything_is_measured_with_its_base(job):
    answer = smoke(job({"seconds": 0.004}, {"seconds": 0.004}))
    assert answer["problems"] == []
    assert len(answer["candidate"]["turns"]) == len(answer["base"]["turns"]) == 8
    metrics = serve_metrics(answer, "run")
    assert metrics[P99].value >= 4
    assert metrics[P99].base_band.origin == "run"
    assert 20 < metrics[PER_SECOND].value < 250
    assert metrics[MEMORY].value > 5e6
    gate = verdict(answer, worse_percent=400, p99_ms=1e5)
    assert gate.verdict == "yes"
    assert "same machine, in turns" in gate.reason
    assert not [pid for pid in procfs.children(smokes.os.getpid()) if "stub_server" in " ".join(procfs.command(pid))]


def test_one_that_sleeps_longer_is_refused(job):
    answer = smoke(job({"seconds": 0.02}, {"seconds": 0.005}))
    gate = verdict(answer, worse_percent=50)
    assert gate.verdict == "no"
    assert "longer than the base's" in gate.reason


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ({"shift": 0.5}, "golden sample is answered otherwise"),
        ({"malformed": 500}, "malformed request was answered with status 500"),
        ({"oversized": 200}, "answered with status 200, wanted 413"),
        ({"takes": []}, "good request was answered with status 400"),
    ],
)
def test_wrong_answers_refuse_the_candidate_without_any_limit(job, mode, said):
    answer = smoke(job(mode))
    assert said in judge_serve(None, answer, serve_metrics(answer, None)).reason
    assert judge_serve(None, answer, serve_metrics(answer, None)).verdict == "no"


def test_a_candidate_that_does_not_start_ends_the_smoke_with_its_code(job, tmp_path, capsys):
    options = job({"exit": 30})
    with pytest.raises(TrainingError, match="the model cannot be opened"):
        smoke(options)
    options["candidate"]["folder"] = str(tmp_path / "candidate")
    (tmp_path / "options.json").write_text(json.dumps(options))
    assert main([str(tmp_path / "options.json")]) == 30
    assert capsys.readouterr().err == "the model cannot be opened\n"


def test_a_golden_answer_that_the_server_refuses_is_no_pass(job):
    with pytest.raises(IntegrityError):
        smoke(job({"exit": 50}))


def test_one_that_is_never_ready_is_ended(job):
    with pytest.raises(TrainingError, match="not ready within 1 s"):
        smoke(job({"silent": True}, start_seconds=1))


@pytest.mark.parametrize(
    ("base", "said"),
    [({"exit": 30}, "does not start"), ({"takes": []}, "with status 400"), (None, "no ancestor has passed")],
)
def test_a_base_that_cannot_be_struck_is_unknown_never_a_pass(job, base, said):
    answer = smoke(job({}, base, no_base="no ancestor has passed"))
    gate = verdict(answer, worse_percent=15)
    assert gate.verdict == "unknown"
    assert said in gate.reason
    assert serve_metrics(answer, "run")[P99].base is None


def test_a_version_without_golden_sample_is_struck_with_what_it_describes(job):
    answer = smoke(job({"golden": False}))
    assert answer["problems"] == []
    assert len(answer["candidate"]["turns"]) == 2 * smokes.GROUPS
