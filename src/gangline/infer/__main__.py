"""python -m gangline.infer FOLDER --code DIR --name NAME --version N: a verified model folder behind KServe's server.

It verifies nothing itself: `gangline infer` and the init container of a pod do so before they start it. One JSON line
on stdout tells that it is ready. The token of callers is in GANGLINE_INFER_TOKEN, or, with --orders, in the first line
of stdin, `{"token": ...}`, for the arguments of a sandbox are seen by others.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import IO

from gangline.errors import ConfigError, GanglineError, TrainingError
from gangline.infer.limits import Limits
from gangline.train.model.published import read_config

TOKEN = "GANGLINE_INFER_TOKEN"  # noqa: S105  # name of a variable


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM; the exit code."""
    options = _parser().parse_args(arguments)
    sys.argv[1:] = []  # kserve parses them at import
    reports = _own_stdout()
    try:
        _serve(options, reports)
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except SystemExit as error:  # a code that the model chose is none of ours
        sys.stderr.write(f"the server ended by sys.exit({error.code!r})\n")
        return ConfigError.exit_code if error.code == ConfigError.exit_code else TrainingError.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gangline.infer")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--code", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--grpc-port", type=int)
    parser.add_argument("--handler")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--wait-ms", type=float)
    parser.add_argument("--queue", type=int)
    parser.add_argument("--max-request-bytes", type=float, default=16e6)
    parser.add_argument("--orders", action="store_true", help="Obey lines on stdin; its end is that of the server.")
    return parser


def _serve(options: argparse.Namespace, reports: IO[str]) -> None:
    if not options.folder.is_dir():
        raise ConfigError(f"wanted a model folder, found nothing at {options.folder}; gangline verify --into makes one")
    table = read_config(options.folder).get("infer") or {}
    try:
        from gangline.infer.server import ServerOptions, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"wanted an environment with gangline[infer], {sys.executable} has no {error.name}; make infer makes one"
        ) from error
    token = json.loads(sys.stdin.readline() or "{}").get("token") if options.orders else os.environ.get(TOKEN)
    stated = {name: getattr(options, name) for name in ("handler", "batch", "wait_ms", "queue")}
    chosen = {name: table.get(name) if value is None else value for name, value in stated.items()}
    serve(
        ServerOptions(
            folder=options.folder, code=options.code, name=options.name, version=options.version, host=options.host,
            port=options.port, grpc_port=options.grpc_port,
            limits=Limits(
                max_request_bytes=int(options.max_request_bytes), most_requests=0, token=token or None
            ),
            **{name: value for name, value in chosen.items() if value is not None},
        ),
        reports=reports,
        orders=sys.stdin if options.orders else None,
    )  # fmt: skip


def _own_stdout() -> IO[str]:
    """The stdout of the parent; code of the model prints to stderr from here on."""
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return reports


if __name__ == "__main__":
    sys.exit(main())
