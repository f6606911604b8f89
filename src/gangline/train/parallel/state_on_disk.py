"""Optimizer state in files instead of memory.

State is in memory-mapped files without a name, which disappear with the process. A step goes over windows of
parameters: the next window is read ahead while one is updated, and a finished one leaves memory; the kernel writes it
back. The optimizer updates one parameter as before, so bits do not change. Saves and resumes use the state by name, as
with any optimizer.
"""

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from gangline.errors import ConfigError, StorageError
from gangline.units import format_bytes

WINDOW_BYTES = 64 << 20
"""Parameters whose state is in memory at a time; with AdamW twice that, and as much again read ahead."""
_ALIGNMENT = 64


class StateOnDisk(Optimizer):
    """`inner`, with its state in files of `folder`; `param_groups` and `state` are its own."""

    def __init__(
        self,
        inner: Optimizer,
        folder: Path,
        *,
        window_bytes: int = WINDOW_BYTES,
        window: "type[StateWindow] | None" = None,
    ) -> None:
        """Args:
            inner: Has not stepped yet.
            folder: Holds the files.
            window_bytes: Parameters that are updated at a time; at least one.
            window: Keeps the state, in files or elsewhere.

        Raises:
            ConfigError: A parameter is not on the CPU.
        """
        parameters = [each for group in inner.param_groups for each in group["params"]]
        _require_on_cpu(parameters)
        self._inner = inner
        super().__init__(inner.param_groups, inner.defaults)
        self._windows = [(window or StateWindow)(each, folder) for each in _split(parameters, window_bytes)]

    @property
    def state(self) -> Any:
        """State of `inner`."""
        return self._inner.state

    @state.setter
    def state(self, state: Any) -> None:
        self._inner.state = state

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups of the optimizer inside."""
        return self._inner.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        """Replace the groups of the optimizer inside."""
        self._inner.param_groups = groups

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters, a window at a time.

        Raises:
            StorageError: The disk has too little space for the state.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, window in enumerate(self._windows):
            if number + 1 < len(self._windows):
                self._windows[number + 1].read_ahead()
            with _only(self.param_groups, window.parameters):
                self._inner.step()
            window.take(self.state)
            window.leave_memory()
        return loss


class MatrixStateOnDisk:
    """State that a matrix rule keeps, in files: zeros of a new file, and dropped from memory once a step used it.

    `files` of a `MatrixOptimizer`.
    """

    def __init__(
        self, parameters: list[nn.Parameter], folder: Path, *, window_bytes: int = WINDOW_BYTES,
        window: "type[StateWindow] | None" = None,
    ) -> None:  # fmt: skip
        """Arguments as of `StateOnDisk`."""
        _require_on_cpu(parameters)
        windows = [(window or StateWindow)(each, folder) for each in _split(parameters, window_bytes)]
        self._window_of = {parameter: state_window for state_window in windows for parameter in state_window.parameters}
        self._missing = {state_window: set(state_window.parameters) for state_window in windows}

    def created(self, parameter: Tensor, state: Any) -> None:
        """Its state exists; the last one of a window moves all of it into the file."""
        window = self._window_of[parameter]  # type: ignore[index]  # the parameters of an optimizer
        self._missing[window].discard(parameter)
        if not self._missing[window]:
            window.take(state)
            window.leave_memory()

    def used(self, parameter: Tensor) -> None:
        """A step needs some of its state no more."""
        self._window_of[parameter].leave_memory()  # type: ignore[index]  # likewise


class StateWindow:
    """Some parameters, and the file of their state once they have one."""

    def __init__(self, parameters: list[nn.Parameter], folder: Path) -> None:
        self.parameters = set(parameters)
        self._order, self._folder = parameters, folder
        self._map: mmap.mmap | None = None
        self._in_file: set[int] = set()
        """Ids of the state tensors that are in the file."""

    def take(self, state: dict[Any, dict[str, Any]]) -> None:
        """Move state tensors that are not in the file into it, as zeros those without memory (meta); numbers stay where
        they are."""
        found = [
            (state[parameter], key, value)
            for parameter in self._order
            for key, value in state.get(parameter, {}).items()
            if isinstance(value, Tensor) and value.ndim and _local(value).numel()
        ]
        if {id(value) for _, _, value in found} == self._in_file:
            return
        places = list(_places([_local(value) for _, _, value in found]))
        self._map = _open(self._folder, places[-1].stop)
        for (holder, key, value), place in zip(found, places, strict=True):
            holder[key] = _moved(value, self._map, place.start)
        self._in_file = {id(holder[key]) for holder, key, _ in found}

    def read_ahead(self) -> None:
        """Ask the kernel to read the file in the background."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_WILLNEED)

    def leave_memory(self) -> None:
        """Drop its pages from the process; the kernel keeps those that are not written yet."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


def _require_on_cpu(parameters: list[nn.Parameter]) -> None:
    """
    Raises:
        ConfigError: A parameter is elsewhere.
    """
    if away := sorted({str(parameter.device) for parameter in parameters if parameter.device.type != "cpu"}):
        raise ConfigError(
            f"train.memory.offload optimizer_nvme: wanted parameters on the CPU, found them on {', '.join(away)}; "
            'fsdp, with train.memory.offload = "cpu" where that is not enough, works there'
        )


def _split(parameters: list[nn.Parameter], window_bytes: int) -> Iterator[list[nn.Parameter]]:
    window: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        own = _local(parameter).nbytes
        if window and size + own > window_bytes:
            yield window
            window, size = [], 0
        window.append(parameter)
        size += own
    if window:
        yield window


@contextmanager
def _only(groups: list[dict[str, Any]], parameters: set[nn.Parameter]) -> Iterator[None]:
    """Inside, the optimizer has only these parameters."""
    whole = [group["params"] for group in groups]
    try:
        for group in groups:
            group["params"] = [each for each in group["params"] if each in parameters]
        yield
    finally:
        for group, params in zip(groups, whole, strict=True):
            group["params"] = params


def _places(tensors: list[Tensor]) -> Iterator[range]:
    """Byte range of each tensor in a file, aligned."""
    start = 0
    for tensor in tensors:
        yield range(start, start + tensor.nbytes)
        start += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT


def _open(folder: Path, size: int) -> mmap.mmap:
    """A mapped file of `size` bytes, all allocated: writing to a hole on a full disk would end the process."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        free = shutil.disk_usage(folder).free if folder.is_dir() else 0
        raise StorageError(
            f"train.memory.offload optimizer_nvme: wanted {format_bytes(size)} for optimizer state in {folder}, "
            f"{format_bytes(free)} are free there: {error}; a larger disk for the gang's folder, zero1 or fsdp works"
        ) from error


def _moved(value: Tensor, file: mmap.mmap, offset: int) -> Tensor:
    local = _local(value)
    flat = torch.frombuffer(file, dtype=local.dtype, count=local.numel(), offset=offset)
    moved = flat.as_strided(local.size(), local.stride())
    if not local.is_meta:
        moved.copy_(local)
    if not isinstance(value, DTensor):
        return moved
    return DTensor.from_local(
        moved, value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
    )


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
