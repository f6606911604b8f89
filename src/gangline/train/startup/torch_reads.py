"""Calls of torch and torchvision that open files in native code, where no audit hook of Python sees them.

Standard library only.
"""

import functools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_CALLS: tuple[tuple[tuple[str, str, str], ...], ...] = (
    (("torch.jit", "load", "f"), ("torch", "from_file", "filename")),
    (("torchvision.io.image", "read_file", "path"), ("torchvision.io", "read_file", "path")),
)
"""Calls of each library: module, function, and parameter that is the path; `torchvision.io.read_image` calls
`read_file`."""


class TorchReads:
    """Calls `opened` with the path before each such call, from the time that the library is imported."""

    def __init__(self, opened: Callable[[Any], None]) -> None:
        self._opened = opened
        self._waiting = _CALLS

    def imports(self) -> None:
        """A module is about to be imported.

        These modules have their functions before the import of their library ends, which imports more after them:
        a caller that comes here at each import is in time.
        """
        self._waiting = tuple(each for each in self._waiting if not self._watch(each))

    def _watch(self, calls: tuple[tuple[str, str, str], ...]) -> bool:
        found = [(sys.modules.get(module), name, parameter) for module, name, parameter in calls]
        if not all(module is not None and name in vars(module) for module, name, _ in found):
            return False
        for module, name, parameter in found:
            setattr(module, name, _seen(vars(module)[name], parameter, self._opened))
        return True


def _seen(call: Callable[..., Any], parameter: str, opened: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(call)
    def seen(*arguments: Any, **named: Any) -> Any:
        with suppress(Exception):
            path = arguments[0] if arguments else named.get(parameter)
            if isinstance(path, str | bytes | os.PathLike):
                opened(path)
        return call(*arguments, **named)

    return seen
