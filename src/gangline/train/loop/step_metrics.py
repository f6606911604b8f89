"""Metrics of a step other than its loss: peak memory, arithmetic per second, bytes sent to other ranks."""

import os
import socket
import stat
import struct
from pathlib import Path

import torch

from gangline.spec.devices import other_kinds
from gangline.spec.plan import Plan

SAMPLE_STEPS = 10
"""Reading peak memory and all connections from the kernel takes time: in every tenth step only."""
FIRST_STEPS = 3
"""First steps of a process, in which its memory grows, if later batches are not larger."""
_ACKED = struct.Struct("=120xQ")
"""Field of Linux's tcp_info: bytes that the peer acknowledged."""


class StepMetrics:
    """Metrics of one rank."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        self._wire: WireMeter | None = None
        self._first = FIRST_STEPS
        planned, names = (
            plan.forecast.device_name,
            [torch.cuda.get_device_name(device)] if device.type == "cuda" else [],
        )
        self._peak = None if other_kinds(planned, names) else plan.forecast.device_flops

    def of_step(self, step: int, seconds: float) -> dict[str, float]:
        """Fields of the event of `step`; `wire_bytes` counts from the first call on."""
        is_sampled, found = step % SAMPLE_STEPS == 0, self.arithmetic(seconds)
        if is_sampled or self._first or step == self._plan.last_step or self._device.type == "cuda":
            found["peak_bytes"] = peak_bytes(self._device)
        self._first = max(0, self._first - 1)
        if self._wire is None:
            self._wire = WireMeter()
        elif is_sampled:
            found["wire_bytes"] = self._wire.take()
        return found

    def arithmetic(self, seconds: float) -> dict[str, float]:
        """Model operations per second of the whole gang, and their share of the devices' peak if that is known.

        Recomputed activations do not count.
        """
        samples, operations = self._plan.global_batch, self._plan.forecast.flops_per_sample
        if operations is None or seconds <= 0:
            return {}
        rate = operations * samples / seconds
        if self._peak is None:
            return {"flops_per_second": rate}
        return {"flops_per_second": rate, "mfu": rate / (self._peak * self._plan.world_size)}


def forget_peak() -> None:
    """Reset the peak of this process: a forked process starts with its parent's."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # a kernel without it counts what was before, too
        return


def peak_bytes(device: torch.device) -> int:
    """Peak of tensors on a GPU; on a CPU of the whole process, with Python and torch."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


class WireMeter:
    """Bytes that this rank sent over TCP, as the kernel counts them. Local.

    Counts the connections that exist when it is created: those of the process groups, not those to a store.
    """

    def __init__(self) -> None:
        self._handles = {handle: number for handle, number in _sockets() if _sent(handle) is not None}
        self._before = self._total()

    def take(self) -> int:
        """Bytes since the last call."""
        total = self._total()
        new, self._before = max(0, total - self._before), total
        return new

    def _total(self) -> int:
        return sum(_sent(handle) or 0 for handle, number in self._handles.items() if _socket_at(handle) == number)


def _sockets() -> list[tuple[int, int]]:
    """Socket handles of this process, with the inode number of each."""
    handles = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return [(handle, number) for handle in handles if (number := _socket_at(handle)) is not None]


def _socket_at(handle: int) -> int | None:
    try:
        status = os.fstat(handle)
    except OSError:  # closed, such as the listing's own handle
        return None
    return status.st_ino if stat.S_ISSOCK(status.st_mode) else None


def _sent(handle: int) -> int | None:
    """Bytes sent and acknowledged; None if it is not a TCP connection."""
    try:
        with socket.socket(fileno=os.dup(handle)) as own:
            if own.family not in (socket.AF_INET, socket.AF_INET6) or own.type != socket.SOCK_STREAM:
                return None
            info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.size)
    except OSError:
        return None
    return int(_ACKED.unpack(info)[0]) if len(info) == _ACKED.size else None
