"""Random generators of a rank: seeded, saved and restored, so that a resumed run draws the same numbers."""

import base64
import os
import random
import sys
from typing import Any, cast

import torch

from gangline.train.runtime.initialization import derived_seed


def set_deterministic(deterministic: bool) -> None:
    """Refuse operations whose result may differ from call to call."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        cast(Any, torch.utils.deterministic).fill_uninitialized_memory = False  # costs a pass over every new tensor
    torch.use_deterministic_algorithms(deterministic)


def seed_everything(seed: int, *, rank: int | None = None, step: int = 0) -> None:
    """Seed the generators of python, numpy and torch; with `rank` differently on each, as dropout needs.

    `step` is the step at which a training resumes without saved generators.
    """
    own = derived_seed(seed, "draw", rank, *([step] if step else []))
    random.seed(own)
    torch.manual_seed(own)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(own % 2**32)


def generator_state() -> dict[str, Any]:
    """JSON data for `restore_generators`."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(internal), gauss], "torch": _encode(torch.get_rng_state())}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        state["cuda"] = _encode(torch.cuda.get_rng_state())
    if "numpy" in sys.modules:
        name, keys, place, has_gauss, cached = sys.modules["numpy"].random.get_state()
        state["numpy"] = [name, [int(key) for key in keys], int(place), int(has_gauss), float(cached)]
    return state


def restore_generators(state: dict[str, Any]) -> None:
    """Inverse of `generator_state`; without a state of CUDA its generator stays."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(_decode(state["torch"]))
    if "cuda" in state:
        torch.cuda.set_rng_state(_decode(state["cuda"]))
    if "numpy" in state and "numpy" in sys.modules:
        name, keys, place, has_gauss, cached = state["numpy"]
        numpy = sys.modules["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype="uint32"), place, has_gauss, cached))


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(bytes(state.tolist())).decode()


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
