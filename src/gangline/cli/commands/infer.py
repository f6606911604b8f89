"""`gangline infer`: a published model answers on this machine, behind KServe's own server."""

import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.cli.options import HERE, RepoOption, SiteOption
from gangline.cli.terminal import say, spinner
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import GanglineError, TrainingError
from gangline.infer.caller import request_body
from gangline.line.gangs.infer_server import READY_SECONDS, InferServer, ServedFolder, infer_python, started_server
from gangline.line.results.served_version import (
    NamedVersion,
    code_layer,
    fetch_verified,
    find_version,
    require_verified,
)
from gangline.registry.versions import Version
from gangline.spec.config.secrets import resolve_secret
from gangline.train.model.golden import read_golden
from gangline.train.model.published import read_config, require_handler

FOLLOW_SECONDS = 10.0
"""How often the alias is looked at."""


def command(
    target: Annotated[str, typer.Argument(help="MODEL, MODEL@ALIAS or MODEL/VERSION; an alias is followed.")],
    *,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port.", show_default="infer.port of the site")
    ] = None,
    grpc: Annotated[int | None, typer.Option("--grpc", metavar="PORT", help="Serve gRPC, too.")] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Verify a version, load it, and answer requests of the Open Inference Protocol until Ctrl-C or SIGTERM."""
    workspace = open_workspace(repo, site)
    infer_python(workspace.site, workspace.environ)
    named = find_version(target, workspace.store)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="gangline-infer-") as place:
        with spinner("verifying"):
            served = _fetch(named, Path(place), workspace)
        _say_verified(named.version)
        table = workspace.site.infer
        options = ["--host", table.host, "--port", str(port or table.port)]
        options += ["--max-request-bytes", str(table.max_request_bytes)]
        options += ["--grpc-port", str(grpc)] if grpc else []
        token = resolve_secret(table.token, workspace.environ) if table.token else None
        with started_server(
            served, workspace.repo, site=workspace.site, environ=workspace.environ, options=tuple(options), token=token
        ) as server:
            with spinner("loading"):
                ready = server.report(READY_SECONDS)
            if ready is None:
                raise TrainingError(f"the server was not ready within {READY_SECONDS:.0f} s")
            _say_ready(named.version, ready, _request_file(served.folder, Path(place)))
            try:
                _follow(target, named, server, workspace)
            except KeyboardInterrupt:
                with suppress(KeyboardInterrupt):
                    say("drain   no new requests; what waits is answered")
                    server.drain()


def _fetch(named: NamedVersion, place: Path, workspace: Workspace) -> ServedFolder:
    """Download and verify one version into a folder below `place`."""
    version = named.version
    folder = place / f"{version.model}-{version.version}"
    checks = fetch_verified(named, folder, store=workspace.store, site=workspace.site, environ=workspace.environ)
    require_verified(f"{version.model} {version.version}", checks)
    require_handler(folder, read_config(folder))
    code = code_layer(folder, workspace.store)
    return ServedFolder(folder=folder, code=code, name=version.model, version=version.version)


def _follow(target: str, named: NamedVersion, server: InferServer, workspace: Workspace) -> None:
    """Watch the alias; a version that fails its checks is not served, and the old one stays."""
    while True:
        if (report := server.report(FOLLOW_SECONDS)) is not None:
            _say_swap(report)
            continue
        if named.alias is None:
            continue
        try:
            version = find_version(target, workspace.store)
            if version.alias == named.alias:
                continue
            if version.version == named.version:
                named = version
                continue
            with tempfile.TemporaryDirectory(prefix="gangline-infer-") as place:
                server.swap(_fetch(version, Path(place), workspace))
            named = version
        except GanglineError as error:
            say(f"keep    {named.version.model} {named.version.version} answers on: {error}")


def _say_verified(version: Version) -> None:
    say(
        f"verify  {version.model} {version.version}: signed by key {version.key_id}, provenance names"
        f" {version.model} {version.version}, {len(version.files)} of {len(version.files)} files, none beyond them"
    )


def _request_file(folder: Path, place: Path) -> Path | None:
    """A request that the model answers, the first of its golden samples, written while it serves; None: it has none."""
    golden = read_golden(folder)
    if golden is None:
        return None
    file = place / "request.json"
    file.write_bytes(request_body({name: array[:1] for name, array in golden.inputs.items()}))
    return file


def _say_ready(version: Version, ready: dict[str, Any], request: Path | None) -> None:
    say(
        f"ready   {ready['ready']}/v2/models/{version.model}/infer · version {ready['version']} · batches of up to"
        f" {ready['batch']}, {ready['queue']} may wait"
    )
    say(f"        golden sample: {ready['golden']}")
    if request is not None:
        say(f"try     curl -d @{request} {ready['ready']}/v2/models/{version.model}/infer")


def _say_swap(report: dict[str, Any]) -> None:
    if "swapped" in report:
        say(f"swap    version {report['swapped']} answers · golden sample: {report['golden']}")
    elif "refused" in report:
        say(f"keep    version {report['refused']} was not loaded: {report['error']}")
