"""Smoke `serve` of stage publish: the candidate and the base's version are started in the sandbox, struck and judged.

Everything happens in one process of the sandbox, as servers listen on loopback there; the driver verifies the base's
version, lays folders out, and judges what the process measured.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gangline
from gangline.errors import ConfigError, GanglineError, IntegrityError, TrainingError, error_for
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.line.gangs.infer_server import infer_python
from gangline.line.gangs.runners import runs_in_pod
from gangline.line.gangs.sandbox import local_runner, sandbox_of
from gangline.line.record.context import RunContext
from gangline.line.results.serve_gate import SERVE, SERVE_METRICS, judge_serve, serve_metrics
from gangline.line.results.served_version import NamedVersion, fetch_code, fetch_verified, require_verified
from gangline.registry.publish_rules import check_gates
from gangline.registry.versions import list_versions
from gangline.spec.codec import from_plain
from gangline.spec.config.secrets import plain_of
from gangline.spec.measurements import Answer, Metric
from gangline.spec.record import Gate, Record
from gangline.storage.objects.blobs import PREFIX, get_blob
from gangline.storage.objects.code_layer import unpack

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
        shutil.rmtree(self._workdir, ignore_errors=True)
        self._workdir.mkdir(parents=True)
        options: dict[str, Any] = {
            "module": "gangline.infer",
            "candidate": {"name": model, "version": 0, "folder": "../candidate", "code": "../candidate-code"},
            "start_seconds": START_SECONDS, "strike_seconds": STRIKE_SECONDS,
            "max_request_bytes": int(self._ctx.site.infer.max_request_bytes),
        }  # fmt: skip
        files: dict[str, bytes | Path] = {"candidate": folder, "candidate-code": self._own_code()}
        try:
            options |= self._base(model, files)
        except GanglineError as error:
            options["no_base"] = f"the base's version cannot be used: {error}"
        done = local_runner(self._ctx.repo, site=self._ctx.site, environ=self._ctx.environ).run(
            ModuleJob(
                module="gangline.infer.smoke", arguments=("../options.json",), seconds=_SECONDS, path=("../packages",),
                files=files | {"options.json": json.dumps(options).encode(), "packages": self._packages()},
                env=plain_of(self._ctx.line.train.env), trust=self._ctx.record.commit.trust,
                python=infer_python(self._ctx.site, self._ctx.environ), site_python=True,
            )
        )  # fmt: skip
        if done.exit_code is None:
            raise TrainingError(f"the smoke of the server did not end within {_SECONDS:.0f} s")
        if done.exit_code == IntegrityError.exit_code:
            return {"problems": [f"the candidate does not start as a server: {done.output_tail[:300]}"]}
        if done.exit_code:
            raise error_for(done.exit_code)(f"the candidate does not start as a server: {done.output_tail[:300]}")
        try:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except (ValueError, TypeError, IndexError) as error:
            raise TrainingError(f"wanted JSON from the smoke of the server, found {done.stdout[-80:]!r}") from error

    def _packages(self) -> Path:
        """Folder of packages with gangline alone: the environment of the server has all that it imports."""
        folder = self._workdir / "packages"
        folder.mkdir()
        (folder / "gangline").symlink_to(Path(str(gangline.__file__)).parent)
        return folder

    def _own_code(self) -> Path:
        key = self._ctx.record.inputs.code
        unpack(get_blob(self._ctx.store, key if key.startswith(PREFIX) else PREFIX + key), self._workdir / "code")
        return self._workdir / "code"

    def _base(self, model: str, files: dict[str, bytes | Path]) -> dict[str, Any]:
        """Options of the version of the base run, whose verified files join `files`; a reason where there is none."""
        base = self._ctx.record.commit.base
        if base is None:
            return {"no_base": "no ancestor has passed"}
        version = next((each for each in list_versions(self._ctx.store, model) if each.run == base.run), None)
        if version is None:
            return {"no_base": f"the base {base.run} has published no version of {model}"}
        folder, code = self._workdir / "base", self._workdir / "base-code"
        checks = fetch_verified(
            NamedVersion(version), folder, store=self._ctx.store, site=self._ctx.site, environ=self._ctx.environ
        )
        require_verified(f"{model} {version.version}", checks)
        fetch_code(folder, code, self._ctx.store)
        files |= {"base": folder, "base-code": code}
        return {"base": {"name": model, "version": version.version, "folder": "../base", "code": "../base-code"}}


def _with_gate(record: Record, gate: Gate) -> Record:
    return replace(record, gates=(*(each for each in record.gates if each.name != SERVE), gate))
