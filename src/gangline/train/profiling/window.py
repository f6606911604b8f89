"""Profiler window of one rank: torch's profiler around some steps, then trace and summary in the output folder."""

import gzip
import json
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from gangline.spec.gang.profiling import ProfileRequest, ProfileSummary
from gangline.train.profiling.trace_summary import STEP, summarise

MOST_PHASES = 2000
MOST_TRACE_BYTES = 64 << 20
"""Compressed; of a larger trace only the summary is kept."""


class ProfilerWindow:
    """Open from its creation to `close`; local, no collective."""

    def __init__(self, request: ProfileRequest, *, rank: int, folder: Path, device: torch.device) -> None:
        """`folder` is the window's; files appear there atomically."""
        self.request = request
        self._rank, self._folder = rank, folder
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profiler = profile(activities=activities, profile_memory=True)
        self._profiler.start()
        self._step = ExitStack()
        self._origin: float | None = None
        self._phases: list[tuple[float, str]] = []

    def phase(self, name: str) -> None:
        """The loop enters phase `name`."""
        if self._origin is not None and len(self._phases) < MOST_PHASES:
            self._phases.append((time.monotonic() - self._origin, name))

    def begin_step(self, step: int) -> None:
        """End the range of the last step and begin that of `step`; local."""
        self._step.close()
        if self._origin is None:
            self._origin = time.monotonic()
        self._step.enter_context(record_function(f"{STEP}{step}"))

    def close(self) -> ProfileSummary:
        """Stop, and write trace and summary."""
        self._step.close()
        self._profiler.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".rank-{self._rank}.trace.json.gz"
        self._profiler.export_chrome_trace(str(draft))
        with gzip.open(draft, "rt", encoding="utf-8", errors="replace") as file:
            events = json.load(file).get("traceEvents", [])
        summary = summarise(
            events, self.request, rank=self._rank, node=socket.gethostname(), phases=tuple(self._phases)
        )
        size = draft.stat().st_size
        if size > MOST_TRACE_BYTES:
            draft.unlink()
            return self._write(summary)
        trace = self._folder / f"rank-{self._rank}.trace.json.gz"
        draft.replace(trace)
        return self._write(replace(summary, trace=trace.name, trace_bytes=size))

    def _write(self, summary: ProfileSummary) -> ProfileSummary:
        draft = self._folder / f".rank-{self._rank}.json"
        draft.write_bytes(summary.to_json())
        draft.replace(summary_path(self._folder, self._rank))
        return summary


def summary_path(folder: Path, rank: int) -> Path:
    """File of a rank's summary below the folder of profiles."""
    return folder / f"rank-{rank}.json"
