"""Calls of torch that open files in native code, where no audit hook of Python sees them. Standard library only."""

import functools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_CALLS = (("torch.jit", "load", "f"), ("torch", "from_file", "filename"))
"""Module, function, and parameter that is the path."""


def watch_torch(opened: Callable[[Any], None]) -> bool:
    """Call `opened` with the path before each such call from now on; false: torch is not imported so far.

    `torch.jit` has its functions before `import torch` ends, which imports much after them: a caller that looks at
    each import is in time.
    """
    found = [(sys.modules.get(module), name, parameter) for module, name, parameter in _CALLS]
    if not all(module is not None and name in vars(module) for module, name, _ in found):
        return False
    for module, name, parameter in found:
        setattr(module, name, _seen(vars(module)[name], parameter, opened))
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
