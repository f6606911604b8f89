"""Worker process that imports definitions and kfp: compiles a pipeline, or runs it with kfp's local runner.

`python -m gangline.kfp.worker` reads one request from its standard input and writes its result to a file. The input
stays open; at its end the parent has died, and the worker kills its process group.
"""

import importlib
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gangline.spec.codec import canonical, from_json


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRequest:
    """What the worker does; one line of JSON."""

    action: Literal["compile", "run"]
    root: str
    """Definitions root: the folder that holds `pipelines/` and `components/`."""
    pipeline: str = "train_line"
    image: str
    run_seconds: int
    secrets: tuple[str, ...] = ()
    retries: int = 2
    """Retries of a task; 0 for the local runner, whose processes are not lost like pods."""
    folder: str
    """Folder for outputs of tasks and the pipeline file."""
    run: str = ""
    config: str = ""

    def to_line(self) -> bytes:
        """The request as the line that the worker reads."""
        return canonical(self) + b"\n"


def main() -> None:
    """Read the request from standard input and do it."""
    request = from_json(WorkerRequest, sys.stdin.buffer.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    pipeline = _define(request)
    if request.action == "compile":
        _compile(pipeline, Path(request.folder))
    else:
        _run(pipeline, request)


def _define(request: WorkerRequest) -> Any:
    """Import the pipeline of the definitions root, which comes first on the path."""
    sys.path.insert(0, request.root)
    module = importlib.import_module(f"pipelines.{request.pipeline}")
    return module.define(
        image=request.image, run_seconds=request.run_seconds, secrets=request.secrets, retries=request.retries
    )


def _compile(pipeline: Any, folder: Path) -> None:
    from kfp.compiler import Compiler  # type: ignore[import-untyped]  # kfp publishes no types

    Compiler().compile(pipeline, str(folder / "pipeline.yaml"))


def _run(pipeline: Any, request: WorkerRequest) -> None:
    """Raises RuntimeError if a task failed, which has reported its error itself."""
    from kfp import local  # type: ignore[import-untyped]  # kfp publishes no types

    signal.signal(signal.SIGINT, lambda *_: None)  # tasks handle it, and the runner waits for them
    runner = local.SubprocessRunner(use_venv=False)
    local.init(runner, pipeline_root=str(Path(request.folder) / "outputs"), raise_on_error=True)
    pipeline(run=request.run, config=request.config)


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
