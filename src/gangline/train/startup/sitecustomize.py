"""Start-up of every Python program of a rank, found through PYTHONPATH; then runs the next `sitecustomize` as usual.

Standard library only. An error here costs the report of a program, and never ends the program.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _code_first() -> None:
    """Move the finders of editable installs behind the path: the code of the commit is on the path."""
    on_path = next((each for each in sys.meta_path if getattr(each, "__name__", "") == "PathFinder"), None)
    if on_path is None:
        return
    place = sys.meta_path.index(on_path)
    early = [each for each in sys.meta_path[:place] if "editable" in _origin_of(each)]
    for finder in early:
        sys.meta_path.remove(finder)
    place = sys.meta_path.index(on_path) + 1
    sys.meta_path[place:place] = early


def _origin_of(finder: object) -> str:
    kind = finder if isinstance(finder, type) else type(finder)
    return f"{kind.__module__}.{kind.__name__}".lower()


_WATCHES = {"GANGLINE_PROCESSES": "processes", "GANGLINE_RAN": "audit", "GANGLINE_METRICS_FILE": "metrics_writers"}
"""Module that watches this process, by the variable that asks for it."""


def _watch() -> None:
    package = type(sys)("_gangline_startup")  # without `importlib.util`, whose imports cost every program its start
    package.__path__ = [_HERE]
    for variable, module in _WATCHES.items():
        if os.environ.get(variable):
            sys.modules[package.__name__] = package
            name = f"{package.__name__}.{module}"
            try:
                __import__(name)
                sys.modules[name].begin(os.environ)
            except Exception:  # noqa: S112  # the program starts without this report
                continue


def _next() -> None:
    """Import the `sitecustomize` that this one hides; its errors are raised."""
    this = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")  # the next one on the path
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this


def _start() -> None:
    for each in (_code_first, _watch):
        try:
            each()
        except Exception:  # noqa: S112  # the program starts without its report
            continue
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != _HERE]
    _next()


if __name__ == "sitecustomize":
    _start()
