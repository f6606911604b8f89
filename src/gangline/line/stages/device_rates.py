"""Device rates of this machine, measured by a child process once and cached for all repositories of the user."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gangline.build.environment import interpreter_digest
from gangline.errors import GanglineError, IntegrityError, TrainingError, storage_errors
from gangline.launch.sandbox.environment import passed_on
from gangline.planner.shapes.device_pool import choose_precision, open_pool
from gangline.procfs import processor_name
from gangline.spec.codec import digest
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Exchange, Inventory, Rates
from gangline.spec.profile import Attention, ModelProfile

TIMEOUT_SECONDS = 90.0
MOST_ATTENTION = 3
MOST_MATRICES = 12
"""Sizes of products that are measured: those with the most work."""


@dataclass(frozen=True, slots=True)
class KnownRates:
    """What is known of the devices; `trouble` says why nothing is, where something could be."""

    rates: Rates | None = None
    trouble: str = ""


def device_rates(
    line: Line, site: Site, inventory: Inventory, profile: ModelProfile | None, *, cache: Path,
    say: Callable[[str], None],
) -> KnownRates:  # fmt: skip
    """Rates of this machine for the products of `profile`; nothing for devices that are elsewhere.

    Args:
        line: Says in which precision.
        site: Of the pool.
        inventory: Of what ranks may use.
        profile: Of the line's model; without a trace there is nothing to ask.
        cache: Folder of what was measured before.
        say: Told before something is measured.
    """
    if inventory.origin != "this machine" or profile is None:
        return KnownRates()
    trace = profile.trace(precision := choose_precision(line, inventory))
    if trace is None:
        return KnownRates()
    pool = open_pool(site, inventory)
    question = {
        "device": pool.device,
        "precision": precision,
        "ranks": max(1, pool.preferred),
        "cores": inventory.cores,
        "matrices": [[each.rows, each.inner, each.columns] for each in trace.matrices[:MOST_MATRICES]],
        "attention": _largest(trace.attention),
    }
    kept = cache / f"rates-{digest(_about(question, pool.name))[:32]}.json"
    try:
        if (found := _kept(kept)) is None:
            say("measuring what this machine does")
            found = _keep(kept, _measure(question))
        return KnownRates(found)
    except (GanglineError, OSError, subprocess.SubprocessError) as error:
        return KnownRates(trouble=f"rates of this machine were not measured: {error}")


def _largest(attention: Sequence[Attention]) -> list[list[int]]:
    """Sizes with the most work, without their heads."""
    found = {
        (each.queries, each.keys, each.width, int(each.is_causal)): None
        for each in sorted(attention, key=lambda each: -each.count * each.flops)
    }
    return [list(size) for size in found][:MOST_ATTENTION]


def _about(question: Mapping[str, Any], device: str) -> dict[str, Any]:
    """All that an answer depends on: a machine that is another one, or sees other devices, is asked anew."""
    return {
        **question,
        "name": device if question["device"] == "cuda" else processor_name(),
        "environment": interpreter_digest(),
        "messages": list(get_args(Exchange)),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def _measure(question: Mapping[str, Any]) -> bytes:
    command = [sys.executable, "-m", "gangline.measure.device_rates"]
    done = subprocess.run(
        command, input=json.dumps(question).encode(), env={**passed_on(), "OMP_NUM_THREADS": "1"}, capture_output=True,
        check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        raise TrainingError(said[-1])
    return done.stdout


def _kept(path: Path) -> Rates | None:
    """None: nothing, or nothing that this version reads."""
    try:
        return Rates.from_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IntegrityError):
        return None


def _keep(path: Path, data: bytes) -> Rates:
    found = Rates.from_json(data)
    staged = path.with_suffix(f".{os.getpid()}")
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(data)
        staged.replace(path)
    return found
