"""Inspection of this machine and, if one is named, of a task's model, in a child process; prints one JSON object.

    python -m gangline.measure.inspect [--task module:Class] [--options JSON] [--schedule module:function]

    {"torch": "2.15.0", "nccl": null, "cores": 2, "memory_bytes": ..., "devices": [{"kind", "name", "memory_bytes",
     "count", "has_bf16"}], "parameters": ..., "largest_block_parameters": ...,
     "blocks": ..., "tensor_cuts": ..., "experts": ..., "traces": [...], "untraced": "why there are none"}

The task is imported from the current folder, and its model is built on the meta device, which takes no memory; output
of user code goes to stderr. "obstacles" says why a model cannot be cut along an axis with any degree, or its loss into
chunks. On failure it exits with a code of the error tree and prints the reason to stderr.
"""

import argparse
import contextlib
import gc
import json
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError, GanglineError, TrainingError
from gangline.measure.machine import machine
from gangline.measure.task_errors import raised
from gangline.train.loop.learning_rate import check_function


def main(arguments: list[str]) -> int:
    """Inspect a task or a schedule of the current folder and write JSON to stdout; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gangline.measure.inspect")
    parser.add_argument("--task", help="module:Class in the current folder")
    parser.add_argument("--schedule", help="module:function in the current folder")
    parser.add_argument("--steps", type=int, default=1, help="number of steps of the training")
    parser.add_argument("--options", default="{}", help="the table [model] as JSON")
    parser.add_argument("--data", default="[]", help="file names of the data as JSON")
    options = parser.parse_args(arguments)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            sys.path.insert(0, str(Path.cwd()))
            found = machine()
            if options.schedule:
                check_function(options.schedule, steps=options.steps)
            if options.task:
                found |= _model(options.task, json.loads(options.options), json.loads(options.data))
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except (Exception, SystemExit) as error:  # a code that the model chose is none of ours
        traceback.print_exc()
        sys.stderr.write(f"{raised(error)}\n")
        return TrainingError.exit_code
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _model(task: str, options: dict[str, Any], names: list[str]) -> dict[str, Any]:
    if find_spec("torch") is None:
        raise ConfigError(f"a task trains with torch, found none in {sys.prefix}; install gangline[train], or lock it")
    from gangline.measure import model_facts

    return model_facts.model(task, options, names)


def _import_without_collector() -> None:
    """What torch makes on import stays; the collector that looks at it again and again took a third of the time."""
    gc.disable()
    import_module("gangline.measure.model_facts")
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    if "--task" in sys.argv and find_spec("torch"):
        _import_without_collector()
    code = main(sys.argv[1:])
    gc.unfreeze()  # libraries that look for leaks at the end would report what stays, below the reason of a failure
    sys.exit(code)
