"""Where the processes of a rank are watched: exceptions, starts, signals and ends. Standard library only.

Every Python of a rank imports this module at its start, so it imports none that costs a start; what it sees goes to
`process_watch`, which is imported when there is something to report. An audit hook of Python (PEP 578) sees exceptions
that nothing caught, signals that are sent, and starts. There are no events for exit statuses: the functions of `os`
that return them are replaced by ones that look at what they return.
"""

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from types import FrameType, ModuleType
    from typing import Any

    from .process_watch import ProcessWatch

PROGRAM = "GANGLINE_PROGRAM"
"""Name of the program whose workers have none of their own."""
_WATCHER = "GANGLINE_WATCHER"
"""Process that watches the ones that it starts."""
_HERE = os.path.dirname(os.path.abspath(__file__)) + "/"
_NOT_STARTED = "_execute_child"
"""Function of `subprocess` that waits for a process whose program was not found."""


class Watcher:
    """This process, and its watch once there is something to report."""

    def __init__(self, environ: "MutableMapping[str, str]") -> None:
        """`environ`: variables of this process, which the processes that it starts inherit."""
        self._environ = environ
        self.main_thread = _thread.get_ident()
        self.program = own_program(sys.orig_argv) or environ.get(PROGRAM, "python")
        self.known: ProcessWatch | None = None

    @property
    def watch(self) -> "ProcessWatch":
        """The watch of this process."""
        if self.known is None:
            from .process_watch import ProcessWatch

            self.known = ProcessWatch(self._environ, self.program)
        return self.known

    def begin(self) -> None:
        """Report the beginning of this process, unless the one that started it watches it."""
        if self._environ.get(_WATCHER) != str(os.getppid()):
            self.watch.begin()
        if self._environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            self.watch.restarted()
        self._watch_children()

    def forked(self) -> None:
        """Called in the child process after a fork, which its parent waits for."""
        self.main_thread = _thread.get_ident()
        if self.known is not None:
            self.known.forked()
        self._watch_children()

    def _watch_children(self) -> None:
        """Name this process to those that it will start."""
        self._environ[_WATCHER] = str(os.getpid())
        self._environ[PROGRAM] = self.program


def begin(environ: "MutableMapping[str, str]") -> None:
    """Watch this process, and those that it starts, from now on; GANGLINE_PROCESSES names the file of the report."""
    watcher = Watcher(environ)
    _see_functions(watcher)
    late = LateHooks(watcher)
    for name in ("start_new_thread", "start_joinable_thread"):
        if hasattr(_thread, name):
            _replace(_thread, name, before=late.set)
    sys.addaudithook(_hook_of(watcher, late))
    os.register_at_fork(after_in_child=watcher.forked)
    watcher.begin()


def own_program(words: "list[str]") -> str:
    """File name of the script, or the module, that a command of Python runs; empty: a worker of another program."""
    rest = iter(words[1:])
    for word in rest:
        if word[:1] != "-":
            return os.path.basename(word)
        if word == "--check-hash-based-pycs":
            next(rest, None)
        for place, letter in enumerate(word[1:] if word[1:2] != "-" else "", start=2):
            if letter in "cmWX":
                value = word[place:] or next(rest, "")
                if letter == "m":
                    return "" if value.endswith(".popen_loky_posix") else value
                if letter == "c":
                    return "" if value.startswith("from multiprocess") else "python -c"
                break
    return "python"


def _see_functions(watcher: Watcher) -> None:
    """Look at what functions of `os` are given, and return."""

    def looks(pid: int, options: int) -> None:
        if watcher.known is not None:
            watcher.known.looks(pid, options)

    def exits(status: int) -> None:
        if status or watcher.known is not None:
            watcher.watch.exits(status)

    for name in ("waitpid", "wait4"):
        _replace(os, name, before=looks, after=lambda found, *_: _ended(watcher, found))
    for name in ("wait", "wait3"):
        _replace(os, name, after=lambda found, *_: _ended(watcher, found))
    _replace(os, "waitid", after=lambda found, *arguments: _ended_by_id(watcher, found, arguments[2]))
    _replace(os, "system", after=lambda status, command: watcher.watch.shell_ended(command, status))
    for name in ("posix_spawn", "posix_spawnp"):
        _replace(os, name, after=lambda pid, path, words, environ: (
            watcher.watch.starts(pid, [path], words, None, environ)
        ))  # fmt: skip
    _replace(os, "_exit", before=exits)


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


def _ended(watcher: Watcher, found: "tuple[Any, ...]") -> None:
    pid, status = found[:2]
    if not pid or (not status and watcher.known is None):
        return
    if sys._getframe(4).f_code.co_name == _NOT_STARTED:  # noqa: SLF001  # the code that waits
        watcher.watch.forgets(pid)
    else:
        watcher.watch.child_ended(pid, status)


def _ended_by_id(watcher: Watcher, found: "Any", options: int) -> None:
    has_ended = found is not None and found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED)
    if has_ended and not options & os.WNOWAIT:
        watcher.watch.child_ended(found.si_pid, found.si_status << 8 * (found.si_code == os.CLD_EXITED))


def _hook_of(watcher: Watcher, late: "LateHooks") -> "Callable[[str, tuple[Any, ...]], None]":
    def uncaught(_hook: "Any", _kind: "Any", error: BaseException, _traceback: "Any") -> None:
        if _thread.get_ident() == watcher.main_thread and _is_top():
            watcher.watch.failed("", error)

    def orders(pid: int, number: int) -> None:
        watcher.watch.orders(pid, number)

    def becomes_another(*_: object) -> None:
        if watcher.known is not None:
            watcher.known.ended()

    calls: dict[str, Callable[..., object]] = {
        "sys.excepthook": uncaught,
        "os.kill": orders,
        "os.killpg": lambda group, number: orders(-group, number),
        "os.exec": becomes_another,
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

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
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
                self._watcher.watch.starts(pid, paths, words, cwd, environ)
            ))  # fmt: skip
            low.fork_exec.is_seen = True
            if hasattr(subprocess, "_fork_exec"):
                subprocess._fork_exec = low.fork_exec  # noqa: SLF001  # its name for that function

    def _in_processes(self, module: "ModuleType") -> bool:
        base = vars(module).get("BaseProcess")
        if base is None:
            return False
        bootstrap, watcher = base._bootstrap, self._watcher  # noqa: SLF001  # no public function sees the exception

        def seen(process: "Any", *arguments: "Any", **named: "Any") -> object:
            run = process.run

            def run_seen() -> None:
                try:
                    run()
                except Exception as error:
                    _try(watcher.watch.failed, "", error, f"{process.name} of {watcher.program}")
                    raise

            process.run = run_seen
            return bootstrap(process, *arguments, **named)

        base._bootstrap = seen  # noqa: SLF001  # nothing public is called at a worker's end
        return True

    def _in_threads(self, module: "Any") -> bool:
        if "main_thread" not in vars(module):  # the module is not whole yet
            return False
        hook, watcher = module.excepthook, self._watcher

        def seen(arguments: "Any") -> object:
            if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
                name = getattr(arguments.thread, "name", "a thread")
                _try(watcher.watch.thread_failed, arguments.exc_value, name)
            return hook(arguments)

        module.excepthook = seen
        return True
