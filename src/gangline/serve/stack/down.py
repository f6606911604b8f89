"""Taking a stack down: exactly the processes that `up` started, last first; with `forget` their data, too."""

import shutil

from gangline.errors import ConfigError, StorageError
from gangline.serve.stack import process
from gangline.serve.stack.home import Home
from gangline.serve.stack.up import Row


def take_down(home: Home, *, forget: bool = False) -> list[Row]:
    """Stop every server of the stack; those that are gone already are said to be.

    Raises:
        CapacityError: Another `up` or `down` is at it.
        StorageError: Its folder could not be removed.
    """
    if not home.folder.is_dir():
        return []
    with home.held():
        rows = _stop_all(home, lenient=forget)
        if forget:
            _remove(home)
    return rows


def _stop_all(home: Home, *, lenient: bool) -> list[Row]:
    """`lenient`: a state that nobody can read stops nothing, so that its folder can be removed."""
    try:
        state = home.read()
    except ConfigError:
        if lenient:
            return []
        raise
    rows = []
    for name, running in reversed(state.running.items()):
        rows.append(Row(name=name, kind="", state="stopped" if process.stop(running) else "gone"))
    state.running = {}
    home.write(state)
    return rows


def _remove(home: Home) -> None:
    try:
        shutil.rmtree(home.folder)
    except OSError as error:
        raise StorageError(f"wanted to remove {home.folder}, found: {error}; allow it, then ask again") from error
