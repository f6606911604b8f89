"""Where a process watch sees what happens: exceptions, starts, signals and ends of processes. Standard library only.

An audit hook of Python (PEP 578) sees exceptions that nothing caught, signals that are sent, and starts. There are no
events for exit statuses: the functions of `os` that return them are replaced by ones that look at what they return.
"""

import _thread
import os
import sys

from .processes import ProcessWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__)) + "/"
_NOT_STARTED = "_execute_child"
"""Function of `subprocess` that waits for a process whose program was not found."""


def install(watch: ProcessWatch) -> None:
    """Let `watch` see this process."""
    for name in ("waitpid", "wait4"):
        _replace(os, name, before=watch.looks, after=lambda found, *_: _ended(watch, found))
    for name in ("wait", "wait3"):
        _replace(os, name, after=lambda found, *_: _ended(watch, found))
    _replace(os, "waitid", after=lambda found, *arguments: _ended_by_id(watch, found, arguments[2]))
    _replace(os, "system", after=lambda status, command: watch.shell_ended(command, status))
    for name in ("posix_spawn", "posix_spawnp"):
        _replace(os, name, after=lambda pid, path, words, environ: watch.starts(pid, [path], words, None, environ))
    _replace(os, "_exit", before=watch.exits)
    late = LateHooks(watch)
    for name in ("start_new_thread", "start_joinable_thread"):
        if hasattr(_thread, name):
            _replace(_thread, name, before=late.set)
    sys.addaudithook(_hook_of(watch, late))
    os.register_at_fork(after_in_child=watch.forked)


def _replace(
    module: object, name: str, *, before: "Callable[..., object] | None" = None,
    after: "Callable[..., object] | None" = None,
) -> None:  # fmt: skip
    """Replace a function by one that does the same; `before` gets its arguments, `after` its result and arguments."""
    original = getattr(module, name)

    def call(*arguments: "Any", **named: "Any") -> object:
        if before is not None:
            _try(before, *arguments, **named)
        found = original(*arguments, **named)
        if after is not None:
            _try(after, found, *arguments)
        return found

    call.__name__ = call.__qualname__ = name
    call.__doc__ = original.__doc__
    setattr(module, name, call)


def _try(call: "Callable[..., object]", *arguments: "Any", **named: "Any") -> None:
    try:
        call(*arguments, **named)
    except Exception:  # the report lacks a line, and the program continues
        return


def _ended(watch: ProcessWatch, found: "tuple[Any, ...]") -> None:
    pid, status = found[:2]
    frame = sys._getframe(4)  # noqa: SLF001  # the code that waits
    if pid and frame.f_code.co_name == _NOT_STARTED:
        watch.forgets(pid)
    elif pid:
        watch.child_ended(pid, status)


def _ended_by_id(watch: ProcessWatch, found: "Any", options: int) -> None:
    has_ended = found is not None and found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED)
    if has_ended and not options & os.WNOWAIT:
        watch.child_ended(found.si_pid, found.si_status << 8 * (found.si_code == os.CLD_EXITED))


def _hook_of(watch: ProcessWatch, late: "LateHooks") -> "Callable[[str, tuple[Any, ...]], None]":
    def uncaught(_hook: "Any", _kind: "Any", error: BaseException, _traceback: "Any") -> None:
        if _thread.get_ident() == watch.main_thread and _is_top():
            watch.failed("", error)

    calls: dict[str, Callable[..., object]] = {
        "sys.excepthook": uncaught,
        "os.kill": watch.orders,
        "os.killpg": lambda group, number: watch.orders(-group, number),
        "os.exec": lambda *_: watch.ended(),
        "subprocess.Popen": late.see_starts,
        **dict.fromkeys(("import", "os.fork"), late.set),
    }
    get = calls.get

    def hook(event: str, arguments: "tuple[Any, ...]") -> None:
        call = get(event)
        if call is not None:
            _try(call, *arguments)

    return hook


def _is_top() -> bool:
    """An exception has left the last frame of this thread; else an extension prints one, and goes on."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # importing `inspect` would slow every program down
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame is None


class LateHooks:
    """Hooks in modules that a program imports later."""

    def __init__(self, watch: ProcessWatch) -> None:
        self._watch = watch
        self._waiting = {
            "multiprocessing.process": self._in_processes,
            "multiprocess.process": self._in_processes,
            "threading": self._in_threads,
        }

    def set(self, *_: object, **__: object) -> None:
        """Set the hooks in modules that are there by now."""
        for name in tuple(self._waiting):
            module = sys.modules.get(name)
            if module is not None and self._waiting[name](module):
                del self._waiting[name]

    def see_starts(self, *_: object) -> None:
        """See what `subprocess`, which is about to start a program, starts from now on."""
        subprocess: Any = sys.modules["subprocess"]
        low: Any = sys.modules["_posixsubprocess"]
        if not getattr(low.fork_exec, "is_seen", False):
            _replace(low, "fork_exec", after=lambda pid, words, paths, _close, _pass, cwd, environ, *_: (
                self._watch.starts(pid, paths, words, cwd, environ)
            ))  # fmt: skip
            low.fork_exec.is_seen = True
            if hasattr(subprocess, "_fork_exec"):
                subprocess._fork_exec = low.fork_exec  # noqa: SLF001  # its name for that function

    def _in_processes(self, module: "ModuleType") -> bool:
        base = vars(module).get("BaseProcess")
        if base is None:
            return False
        bootstrap, watch = base._bootstrap, self._watch  # noqa: SLF001  # no public function sees the exception

        def seen(process: "Any", *arguments: "Any", **named: "Any") -> object:
            run = process.run

            def run_seen() -> None:
                try:
                    run()
                except Exception as error:
                    _try(watch.failed, "", error, f"{process.name} of {watch.program}")
                    raise

            process.run = run_seen
            return bootstrap(process, *arguments, **named)

        base._bootstrap = seen  # noqa: SLF001
        return True

    def _in_threads(self, module: "Any") -> bool:
        if "main_thread" not in vars(module):  # the module is not whole yet
            return False
        hook, watch = module.excepthook, self._watch

        def seen(arguments: "Any") -> object:
            if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
                name = getattr(arguments.thread, "name", "a thread")
                _try(watch.thread_failed, arguments.exc_value, name)
            return hook(arguments)

        module.excepthook = seen
        return True
