"""Worker process that imports definitions and kfp: compiles a pipeline, or runs it with kfp's local runner.

`python -m gangline.kfp.worker` reads one request from its standard input and writes its result to a file. The input
stays open: when it ends, the parent is gone, and the worker kills its process group.
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
    action: Literal["compile", "run"]
    root: str
    """Definitions root: the folder that holds `pipelines/` and `components/`."""
    pipeline: str = "train_line"
    image: str
    run_seconds: int
    secrets: tuple[str, ...] = ()
    retries: int = 2
    """Of a task; a process of this machine is not lost as a pod is, and its runner would sleep between two tries."""
    folder: str
    """Own folder, for the outputs of tasks and for the pipeline file."""
    run: str = ""
    config: str = ""

    def to_line(self) -> bytes:
        return canonical(self) + b"\n"


def main() -> None:
    request = from_json(WorkerRequest, sys.stdin.buffer.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    pipeline = _define(request)
    if request.action == "compile":
        _compile(pipeline, Path(request.folder))
    else:
        _run(pipeline, request)


def _define(request: WorkerRequest) -> Any:
    """The pipeline of the definitions root; nothing of that name elsewhere on the path is taken for it."""
    sys.path.insert(0, request.root)
    module = importlib.import_module(f"pipelines.{request.pipeline}")
    return module.define(
        image=request.image, run_seconds=request.run_seconds, secrets=request.secrets, retries=request.retries
    )


def _compile(pipeline: Any, folder: Path) -> None:
    from kfp.compiler import Compiler  # type: ignore[import-untyped]  # kfp publishes no types

    Compiler().compile(pipeline, str(folder / "pipeline.yaml"))


def _run(pipeline: Any, request: WorkerRequest) -> None:
    """Raises RuntimeError where a task failed; what failed has told its own reason."""
    from kfp import local  # type: ignore[import-untyped]  # kfp publishes no types

    signal.signal(signal.SIGINT, lambda *_: None)  # tasks obey it, and the runner sees how they end
    runner = local.SubprocessRunner(use_venv=False)
    local.init(runner, pipeline_root=str(Path(request.folder) / "outputs"), raise_on_error=True)
    pipeline(run=request.run, config=request.config)


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
