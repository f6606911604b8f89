"""IN5: a candidate is started as a server and measured before it is a version; with KServe's own server as tools."""

import os
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.registry.passed_run import EXAMPLE, copy_of, template

from gangline.errors import GateError, IntegrityError, NotInstalledError, TrainingError
from gangline.line.gangs.infer_server import infer_python
from gangline.line.results.serve_gate import MEMORY, P99, PER_SECOND
from gangline.line.stages import publish_serve
from gangline.line.stages.publish_serve import ServeSmoke, check_serve
from gangline.registry.versions import read_version, version_numbers
from gangline.spec.config.infer_table import ServeGate, SiteInferTable
from gangline.spec.config.line import GateTable, PublishTable
from gangline.spec.record import Base
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, pack

SLOW = """
import functools, time
_forward = GPT.forward

@functools.wraps(_forward)
def _late(self, *given, **named):
    time.sleep({sleep})
    return _forward(self, *given, **named)

GPT.forward = _late
"""
TURNS = [[0.01] * 5] * 8


@pytest.fixture
def workspace(tmp_path, tmp_path_factory):
    """A run whose first attempt is published as version 1, and which is the base of the next."""
    return copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")


def smoke_of(workspace, tmp_path, *, serve=None, based=True, code=None, environ=None, require_base=False):
    """The smoke of a second run, and its record."""
    record = workspace.attempt(2)
    base = Base(commit=record.commit.sha, run=workspace.record.run.id) if based else None
    record = replace(record, commit=replace(record.commit, base=base), gates=())
    if code is not None:
        layer = pack([LayerFile("model.py", code.encode(), executable=False)])
        record = replace(record, inputs=replace(record.inputs, code=put_blob(workspace.store, layer)))
    gate = GateTable(serve=serve, require_base=require_base)
    line = replace(workspace.line, publish=PublishTable(smoke="serve"), gate=gate)
    context = SimpleNamespace(
        record=record, line=line, site=workspace.site, environ=environ or workspace.environ, store=workspace.store,
        repo=workspace.repo,
    )  # fmt: skip
    return ServeSmoke(context, tmp_path / "serve"), record


def publish(workspace, record, smoke):
    """Make the version; the other smoke test is not what is tested here."""
    line = replace(workspace.line, publish=PublishTable(smoke=False))
    return workspace.publish(record, line=line, strike=smoke)


class Servers:
    """Stand-ins of servers, of which nothing is struck; keeps what was started."""

    def __init__(self, error):
        self.error, self.served = error, []

    @contextmanager
    def started(self, served, *_, **__):
        assert served.folder.is_dir()
        self.served.append((served.version, {each.name for each in served.folder.iterdir()}, served.code))
        yield self

    def report(self, seconds):
        if self.error is not None:
            raise self.error
        return {"ready": "http://127.0.0.1:1", "seconds": seconds}

    def infer(self, body):
        return 200, body

    def pids(self):
        return set()

    def drain(self):
        """Nothing waits."""

    close = drain


def measured(seconds=0.01, **more):
    side = {"turns": TURNS, "failed": 0, "memory_bytes": 1000}
    own = {**side, "turns": [[seconds] * 5] * 8}
    return {"per_second": 90.0, "candidate": own, "base": side, **more}


@pytest.fixture
def servers(monkeypatch):
    def use(answer, error=None):
        found = Servers(error)
        monkeypatch.setattr(publish_serve, "started_server", found.started)
        monkeypatch.setattr(publish_serve, "Caller", lambda *_: found)
        monkeypatch.setattr(publish_serve, "golden_body", lambda *_: b"")
        monkeypatch.setattr(publish_serve, "problems", lambda *_, **__: iter(()))
        monkeypatch.setattr(publish_serve, "strike", lambda *_, **__: answer)
        return found

    return use


def test_numbers_are_in_the_record_and_in_the_signed_version(workspace, tmp_path, servers):
    used = servers(measured())
    smoke, record = smoke_of(workspace, tmp_path, serve=ServeGate(worse_percent=15))
    made = publish(workspace, record, smoke)
    assert smoke.gate.verdict == "yes"
    assert smoke.change(record).metrics[P99].base_band.origin == workspace.record.run.id
    assert {P99, PER_SECOND, MEMORY} <= read_version(workspace.store, made.model, 2).metrics.keys()
    [(_, candidate, own_code), (number, base, code)] = used.served
    assert (number, code) == (1, own_code)
    assert "model.safetensors" in candidate
    assert {"model.safetensors", "golden.safetensors", "model.sig"} <= base


def test_a_refused_candidate_becomes_no_version(workspace, tmp_path, servers):
    servers(measured(seconds=0.013))
    smoke, record = smoke_of(workspace, tmp_path, serve=ServeGate(worse_percent=15))
    before = set(workspace.files.rglob("*.safetensors"))
    with pytest.raises(GateError, match="30 % longer than the base's"):
        publish(workspace, record, smoke)
    assert version_numbers(workspace.store, "bytegpt") == (1,)
    assert set(workspace.files.rglob("*.safetensors")) == before
    assert [each.verdict for each in smoke.change(record).gates if each.name == "serve"] == ["no"]


@pytest.mark.parametrize("require_base", [False, True])
def test_without_a_base_the_answer_is_unknown(workspace, tmp_path, servers, require_base):
    used = servers(measured(base=None))
    smoke, record = smoke_of(
        workspace, tmp_path, serve=ServeGate(worse_percent=15), based=False, require_base=require_base
    )
    if require_base:
        with pytest.raises(GateError, match="no ancestor has passed"):
            publish(workspace, record, smoke)
    else:
        publish(workspace, record, smoke)
    assert smoke.gate.verdict == "unknown"
    assert "no ancestor has passed" in smoke.gate.reason
    assert len(used.served) == 1


def test_a_base_that_was_changed_is_never_started(workspace, tmp_path, servers):
    weights = next(each for each in workspace.files.rglob("model.safetensors") if "/model/" in str(each))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    used = servers(measured(base=None))
    smoke, record = smoke_of(workspace, tmp_path, serve=ServeGate(worse_percent=15))
    publish(workspace, record, smoke)
    assert len(used.served) == 1
    assert "bytegpt 1 is not served: files" in smoke.gate.reason


def test_a_candidate_that_does_not_start_fails_by_its_code(workspace, tmp_path, servers):
    servers({}, TrainingError("no memory"))
    smoke, record = smoke_of(workspace, tmp_path)
    with pytest.raises(TrainingError, match="does not start as a server: no memory"):
        publish(workspace, record, smoke)
    assert version_numbers(workspace.store, "bytegpt") == (1,)


def test_a_golden_answer_that_the_server_refuses_is_the_gates_no(workspace, tmp_path, servers):
    servers({}, IntegrityError("no memory"))
    smoke, record = smoke_of(workspace, tmp_path)
    with pytest.raises(GateError, match="no memory"):
        publish(workspace, record, smoke)
    assert smoke.gate.verdict == "no"


def test_what_is_missing_is_said_before_the_training(workspace, tmp_path):
    site = replace(workspace.site, infer=SiteInferTable(python=str(tmp_path / "none")))
    context = SimpleNamespace(site=site, environ=workspace.environ, repo=workspace.repo, record=workspace.record)
    with pytest.raises(NotInstalledError, match=r"infer\.python"):
        check_serve(context)


@pytest.mark.tools
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sleep", [0.0, 0.05])
def test_the_real_server_answers_and_a_sleep_is_refused(workspace, tmp_path, sleep):
    try:
        python = infer_python(workspace.site, os.environ)
    except NotInstalledError as error:
        pytest.skip(f"needs the environment of make infer: {error}")
    code = EXAMPLE.read_text() + (SLOW.format(sleep=sleep) if sleep else "")
    environ = workspace.environ | {"GANGLINE_INFER": str(python).removesuffix("/bin/python")}
    limits = ServeGate(worse_percent=100, memory_bytes=8e9)
    smoke, record = smoke_of(workspace, tmp_path, serve=limits, code=code, environ=environ)
    if sleep:
        with pytest.raises(GateError, match="longer than the base's"):
            workspace.publish(record, strike=smoke)
        assert version_numbers(workspace.store, "bytegpt") == (1,)
    else:
        workspace.publish(record, strike=smoke)
        assert smoke.gate.verdict == "yes", smoke.gate
        assert smoke.metrics[MEMORY].value > 50e6
    print(smoke.text)
