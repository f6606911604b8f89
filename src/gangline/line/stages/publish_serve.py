"""Smoke `serve` of stage publish: the candidate and the base's version are started, each in a sandbox, and judged.

Only own commits are published, so servers listen on the loopback of this machine, and the driver is their caller: what
it measures is out of their reach.
"""

import os
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError, GanglineError, IntegrityError, TrainingError
from gangline.infer.caller import OK, Caller
from gangline.infer.smoke import Server, golden_body, problems, strike
from gangline.line.gangs.infer_server import InferServer, ServedFolder, infer_python, port_of, started_server
from gangline.line.gangs.runners import runs_in_pod
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.record.context import RunContext
from gangline.line.results.serve_gate import SERVE, SERVE_METRICS, judge_serve, serve_metrics
from gangline.line.results.served_version import NamedVersion, code_layer, fetch_verified, require_verified
from gangline.registry.publish_rules import check_gates
from gangline.registry.versions import list_versions
from gangline.spec.codec import from_plain
from gangline.spec.measurements import Answer, Metric
from gangline.spec.record import Gate, Record
from gangline.storage.objects.blobs import PREFIX, get_blob
from gangline.train.model.golden import read_golden

START_SECONDS, STRIKE_SECONDS = 120.0, 120.0
_MARKS: dict[Answer, str] = {"yes": "✓", "no": "✗", "unknown": "?"}
_SECONDS = 2 * START_SECONDS + 2 * STRIKE_SECONDS + 120


def check_serve(ctx: RunContext) -> None:
    """Raises ConfigError before the training where this machine cannot start a candidate as a server."""
    infer_python(ctx.site, ctx.environ)
    sandbox = sandbox_of(ctx.repo, ctx.record.commit.trust, site=ctx.site, environ=ctx.environ)
    if runs_in_pod(sandbox, ctx.site):
        raise ConfigError(
            f'publish.smoke = "serve" wants a driver with a sandbox, this machine has none ({sandbox.engine.text}), and'
            " pods of the line have no server; publish.smoke = true works"
        )


class ServeSmoke:
    """The smoke of one publication."""

    def __init__(self, ctx: RunContext, workdir: Path) -> None:
        """`workdir` is replaced by a fresh folder."""
        self._ctx, self._workdir = ctx, workdir
        self.gate: Gate | None = None
        """Verdict, once the candidate was struck."""
        self.metrics: dict[str, Metric] = {}

    @property
    def text(self) -> str:
        """Verdict and numbers in a line."""
        if self.gate is None:
            return "was struck before this driver came"
        return f"{_MARKS[self.gate.verdict]} {self.gate.reason}"

    def __call__(self, model: str, folder: Path) -> Mapping[str, Metric]:
        """Metrics of the candidate in `folder`.

        Raises:
            GateError: The gate says no; nothing was published.
            TrainingError: The candidate does not start, or the smoke did not end.
        """
        answer = self._answer(model, folder)
        base = self._ctx.record.commit.base
        self.metrics = serve_metrics(answer, base.run if base else None)
        self.gate = judge_serve(self._ctx.line.gate.serve, answer, self.metrics)
        check_gates(_with_gate(self._ctx.record, self.gate), require_base=self._ctx.line.gate.require_base)
        return self.metrics

    def take(self, metrics: Mapping[str, Mapping[str, Any]]) -> None:
        """Use the numbers of the version, which an earlier driver of this run may have made."""
        self.metrics = {name: from_plain(Metric, dict(metrics[name])) for name in SERVE_METRICS & metrics.keys()}

    def change(self, record: Record) -> Record:
        """The record with gate and metrics."""
        record = replace(record, metrics=record.metrics | self.metrics)
        return record if self.gate is None else _with_gate(record, self.gate)

    def _answer(self, model: str, folder: Path) -> dict[str, Any]:
        """What the smoke found; what a server does not end is ended, and fails the run."""
        shutil.rmtree(self._workdir, ignore_errors=True)
        self._workdir.mkdir(parents=True)
        found: dict[str, Any] = {"load": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}
        golden, most_bytes = read_golden(folder), int(self._ctx.site.infer.max_request_bytes)
        with _Deadline(_SECONDS) as deadline, ExitStack() as stack:
            try:
                server = stack.enter_context(self._started(self._candidate(model, folder), deadline))
                body = golden_body(server.caller, golden)
            except IntegrityError as error:
                return {"problems": [f"the candidate does not start as a server: {error}"]}
            except GanglineError as error:
                raise type(error)(f"the candidate does not start as a server: {error}") from error
            if wrong := list(problems(server.caller, golden, body, most_bytes=most_bytes)):
                return {"problems": wrong}
            base, reason = self._open_base(model, body, stack, deadline)
            found |= {"no_base": reason} | strike(server, base, golden, body, budget=STRIKE_SECONDS)
        return found

    def _open_base(self, model: str, body: bytes, stack: ExitStack, deadline: "_Deadline") -> tuple[Server | None, str]:
        """The base, started and able to answer the same request; else None and the reason."""
        try:
            served = self._base(model)
        except GanglineError as error:
            return None, str(error)
        try:
            server = stack.enter_context(self._started(served, deadline))
        except GanglineError as error:
            return None, f"the base does not start as a server: {error}"
        status, _ = server.caller.infer(body)
        return (server, "") if status == OK else (None, f"the base answers this request with status {status}")

    @contextmanager
    def _started(self, served: ServedFolder, deadline: "_Deadline") -> Iterator[Server]:
        """A server as `gangline infer` starts it, ready; its token is known to it and to this process alone."""
        token, most_bytes = secrets.token_hex(16), str(int(self._ctx.site.infer.max_request_bytes))
        with started_server(
            served, self._ctx.repo, site=self._ctx.site, environ=self._ctx.environ,
            options=("--port", "0", "--max-request-bytes", most_bytes), token=token,
        ) as server:  # fmt: skip
            deadline.servers.append(server)
            if (ready := server.report(START_SECONDS)) is None:
                raise TrainingError(f"the server was not ready within {START_SECONDS:.0f} s")
            caller = Caller(port_of(ready), served.name, token)
            yield Server(caller, server.pids)
            caller.close()
            server.drain()

    def _candidate(self, model: str, folder: Path) -> ServedFolder:
        key = self._ctx.record.inputs.code
        code = get_blob(self._ctx.store, key if key.startswith(PREFIX) else PREFIX + key)
        return ServedFolder(folder=folder, code=code, name=model, version=0)

    def _base(self, model: str) -> ServedFolder:
        """The version of the base run, verified; IntegrityError with a reason where there is none."""
        base = self._ctx.record.commit.base
        if base is None:
            raise IntegrityError("no ancestor has passed")
        version = next((each for each in list_versions(self._ctx.store, model) if each.run == base.run), None)
        if version is None:
            raise IntegrityError(f"the base {base.run} has published no version of {model}")
        folder = self._workdir / "base"
        checks = fetch_verified(
            NamedVersion(version), folder, store=self._ctx.store, site=self._ctx.site, environ=self._ctx.environ
        )
        require_verified(f"{model} {version.version}", checks)
        code = code_layer(folder, self._ctx.store)
        return ServedFolder(folder=folder, code=code, name=model, version=version.version)


class _Deadline:
    """Kills servers that outlive their time, so that their caller goes on."""

    def __init__(self, seconds: float) -> None:
        self.servers: list[InferServer] = []
        self._seconds, self._is_over = seconds, False
        self._timer = threading.Timer(seconds, self._end)

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._is_over:
            raise TrainingError(f"the smoke of the server did not end within {self._seconds:.0f} s")

    def _end(self) -> None:
        self._is_over = True
        for server in self.servers:
            server.kill()


def _with_gate(record: Record, gate: Gate) -> Record:
    return replace(record, gates=(*(each for each in record.gates if each.name != SERVE), gate))
