"""Runs one module in a sandboxed process of this machine: a temporary folder, bounded time, bounded output."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gangline import procfs
from gangline.errors import StorageError
from gangline.launch.sandbox.engines import SandboxCommand, SandboxProgram
from gangline.launch.sandbox.host_paths import give, interpreter_paths, is_reachable, is_readable
from gangline.launch.sandbox.module_runner import ModuleJob, ModuleResult
from gangline.launch.sandbox.policy import Sandbox
from gangline.spec.python_environment import code_folders, environ_of_interpreter, python_path
from gangline.spec.record import Trust
from gangline.storage.objects.code_layer import unpack

_MOST_BYTES = 64 * 2**20
"""Limit of what is read of stdout and of stderr."""
_DYING_SECONDS = 10.0
_MARK = "GANGLINE_SCRATCH"
"""Environment variable of all processes that it starts."""


class ProcessRunner:
    """Implements `ModuleRunner` with a process of this machine; a server runs there until its caller is done."""

    def __init__(self, sandbox_of: Callable[[Trust], Sandbox]) -> None:
        self._sandbox_of = sandbox_of

    def run(self, job: ModuleJob) -> ModuleResult:
        with self._laid_out(job) as (folder, command, _):
            return _run(command, job.seconds, folder)

    @contextmanager
    def start(self, job: ModuleJob) -> "Iterator[RunningModule]":
        """A module that runs until the block ends, its stdin and stdout connected to this process.

        Raises:
            IntegrityError: Code of this trust does not run here, as there is no sandbox.
            StorageError: It could not be started.
        """
        with self._laid_out(job) as (folder, command, sandbox), (folder / "stderr").open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    command.argv, env=dict(command.environ), cwd=command.cwd, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=stderr, start_new_session=True, text=True,
                )  # fmt: skip
            except OSError as error:
                raise StorageError(f"cannot start {command.argv[0]!r}: {error.strerror}") from error
            try:
                yield RunningModule(process, folder / "work", folder / "stderr", sandbox)
            finally:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    with suppress(BrokenPipeError):
                        assert pipe is not None
                        pipe.close()

    @contextmanager
    def _laid_out(self, job: ModuleJob) -> "Iterator[tuple[Path, SandboxCommand, Sandbox]]":
        """A folder with what the module sees in `work`, and its command; no process of it is left afterwards."""
        sandbox = self._sandbox_of(job.trust)
        sandbox.require()
        sandbox.require_python(job.python)
        with tempfile.TemporaryDirectory(prefix=f"gangline-{job.module.rpartition('.')[2]}-") as name:
            folder = Path(name).resolve()
            folder.chmod(0o711)  # another user must be able to enter; its own files are below
            work = folder / "work"
            shown = _lay_out(job, work, sandbox)
            give(work, sandbox.engine.uid)
            try:
                yield folder, _command(sandbox, job, work, shown), sandbox
            finally:
                _end_all(work)


@dataclass(frozen=True, slots=True)
class RunningModule:
    """A module that was started."""

    process: "subprocess.Popen[str]"
    work: Path
    log: Path
    """Its stderr."""
    sandbox: Sandbox

    def place(self, name: str, source: Path) -> str:
        """Copy a folder to `../NAME` of the module, for one that already runs; the path there."""
        shutil.copytree(source, self.work / name)
        give(self.work / name, self.sandbox.engine.uid)
        return f"../{name}"

    def pids(self) -> set[int]:
        """Its processes, and those that they started; without a pid namespace also orphans that still name it."""
        orphans = () if self.sandbox.engine.hides else procfs.with_variable(_MARK, str(self.work))
        return {*procfs.descendants(self.process.pid), *orphans}

    def log_tail(self, lines: int = 3) -> str:
        """Last lines of its stderr."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 4096))
            return " / ".join(file.read().decode(errors="replace").strip().splitlines()[-lines:])


def _lay_out(job: ModuleJob, work: Path, sandbox: Sandbox) -> tuple[Path, ...]:
    """Write code and files to `work`; returns the paths of large files, which are linked instead."""
    (work / "tmp").mkdir(parents=True)
    if job.code is None:
        (work / "code").mkdir()
    else:
        unpack(job.code, work / "code")
    shown = []
    for name, data in job.files.items():
        if isinstance(data, bytes):
            (work / name).write_bytes(data)
        elif _may_stay(path := data.resolve(), sandbox):
            (work / name).symlink_to(path)
            shown.append(path)
        else:
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, work / name)
    return tuple(shown)


def _may_stay(path: Path, sandbox: Sandbox) -> bool:
    """Whether the user of model code can read `path` in place."""
    return sandbox.engine.uid is None or (is_readable(path) and (sandbox.engine.hides or is_reachable(path)))


def _command(sandbox: Sandbox, job: ModuleJob, work: Path, shown: tuple[Path, ...]) -> SandboxCommand:
    home = work if sandbox.is_unconfined else sandbox.make_home(work.with_name("home"))
    environ, code = sandbox.environ(home=home, tmp=work / "tmp"), work / "code"
    environ |= {"OMP_NUM_THREADS": "1"} | dict(job.env)
    if job.python:
        environ = environ_of_interpreter(job.python, environ)
        shown = (*shown, *interpreter_paths(job.python, of_site=job.site_python))
    own = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", _MARK: str(work)}
    own["PYTHONPATH"] = python_path(code_folders(code, job.path), environ.get("PYTHONPATH"))
    argv = (job.python or sys.executable, "-m", job.module, *job.arguments)
    if sandbox.is_unconfined:
        return SandboxCommand(argv=argv, environ=environ | own, cwd=code)
    program = SandboxProgram(argv=argv, environ=environ | own, cwd=code, with_parent=True)
    return sandbox.command(program, sandbox.view(tmp=work / "tmp", write=(work, home), read=shown))


def _run(command: SandboxCommand, seconds: float, folder: Path) -> ModuleResult:
    """Run with output to files, as pipes would fill the memory of this process; model code cannot open them."""
    out, err = folder / "stdout", folder / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        try:
            process = subprocess.Popen(
                command.argv, env=dict(command.environ), cwd=command.cwd, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise StorageError(f"cannot start {command.argv[0]!r}: {error.strerror}") from error
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            process.kill()
            process.wait()
    code = 128 - code if code is not None and code < 0 else code  # as shells report a signal
    return ModuleResult(exit_code=code, stdout=_head(out), stderr=_head(err))


def _end_all(work: Path) -> None:
    """Kill the processes that it left, if it had no pid namespace."""
    deadline = time.monotonic() + _DYING_SECONDS
    while (pids := list(procfs.with_variable(_MARK, str(work)))) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES)
