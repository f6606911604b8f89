"""Device rates of this machine, measured by a child process once and cached for all repositories of the user."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gangline.build.own_environment import interpreter_digest
from gangline.errors import GanglineError, IntegrityError, TrainingError, storage_errors
from gangline.launch.sandbox.environment import passed_on
from gangline.planner.pool import choose_precision, open_pool
from gangline.procfs import processor_name
from gangline.spec.codec import digest
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Exchange, Inventory, Rates
from gangline.spec.profile import Attention, ModelProfile
from gangline.storage.folder.durable_files import replace_file

TIMEOUT_SECONDS = 90.0
MOST_ATTENTION = 3
MOST_MATRICES = 12
"""Matrix products that are measured: those with the most work."""


@dataclass(frozen=True, slots=True)
class KnownRates:
    """Measured rates of the devices; `problem` is the reason if a measurement failed."""

    rates: Rates | None = None
    problem: str = ""


def device_rates(
    line: Line, site: Site, inventory: Inventory, profile: ModelProfile | None, *, cache: Path,
    visible_devices: str | None, notify: Callable[[str], None],
) -> KnownRates:  # fmt: skip
    """Rates of this machine for the products of `profile`; empty for devices of a cluster.

    Args:
        line: Decides the precision.
        site: Describes the device pool.
        inventory: Devices that ranks may use.
        profile: Of the line's model; without a trace nothing is measured.
        cache: Folder of earlier measurements.
        visible_devices: CUDA_VISIBLE_DEVICES of this process.
        notify: Called with a sentence before a measurement.
    """
    if inventory.origin != "this machine" or profile is None:
        return KnownRates()
    trace = profile.trace(precision := choose_precision(line, inventory))
    if trace is None:
        return KnownRates()
    pool = open_pool(site, inventory)
    request = {
        "device": pool.device,
        "precision": precision,
        "ranks": max(1, pool.preferred),
        "cores": inventory.cores,
        "matrices": [[matrix.rows, matrix.inner, matrix.columns] for matrix in trace.matrices[:MOST_MATRICES]],
        "attention": _largest(trace.attention),
    }
    cached = cache / f"rates-{digest(_cache_key(request, pool.name, visible_devices))[:32]}.json"
    try:
        if (rates := _read_cached(cached)) is None:
            notify("measuring the rates of this machine")
            rates = _write_cached(cached, _measure(request))
        return KnownRates(rates)
    except (GanglineError, OSError, subprocess.SubprocessError) as error:
        return KnownRates(problem=f"rates of this machine were not measured: {error}")


def _largest(attention: Sequence[Attention]) -> list[list[int]]:
    """Attention sizes with the most work, without the number of heads."""
    found = {
        (each.queries, each.keys, each.width, int(each.is_causal)): None
        for each in sorted(attention, key=lambda each: -each.count * each.flops)
    }
    return [list(size) for size in found][:MOST_ATTENTION]


def _cache_key(request: Mapping[str, Any], device: str, visible_devices: str | None) -> dict[str, Any]:
    """Everything that the rates depend on, such as the processor and the visible devices."""
    return {
        **request,
        "name": device if request["device"] == "cuda" else processor_name(),
        "environment": interpreter_digest(),
        "messages": list(get_args(Exchange)),
        "visible": visible_devices,
    }


def _measure(request: Mapping[str, Any]) -> bytes:
    command = [sys.executable, "-m", "gangline.measure.device_rates"]
    process = subprocess.run(
        command, input=json.dumps(request).encode(), env={**passed_on(), "OMP_NUM_THREADS": "1"}, capture_output=True,
        check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines() or [f"exit {process.returncode}"]
        raise TrainingError(lines[-1])
    return process.stdout


def _read_cached(path: Path) -> Rates | None:
    """None if there is no file, or none that this version can read."""
    try:
        return Rates.from_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IntegrityError):
        return None


def _write_cached(path: Path, data: bytes) -> Rates:
    found = Rates.from_json(data)
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, durable=False)
    return found
