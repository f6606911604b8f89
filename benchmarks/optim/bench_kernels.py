"""One step of Muon on one matrix, on one thread: `python benchmarks/optim/bench_kernels.py`.

Shapes are those of Qwen3-8B and 32B with each side over 16. Each kernel is timed beside `torch.optim.Muon`, turn by
turn in the same run, gradient and parameter in bfloat16: the ratio of medians of processor seconds, below 1 where ours
takes less. torch multiplies in bfloat16, so the columns in float32 do other work. In brackets the error of the step
against the polynomial of the singular values in float64; the parameter is rounded to bfloat16, which is 2e-3 of it.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.qwen3 import QWEN3

from gangline.optim.rules.muon import Muon

TURNS, PART = 15, 16
CASES = [(kernel, dtype) for dtype in ("bfloat16", "float32") for kernel in ("standard", "gram")]


def shapes() -> list[tuple[int, int]]:
    """Shapes of all matrices, each once."""
    found = {each.shape for size in ("8B", "32B") for each in QWEN3[size].matrices("split")}
    return sorted((rows // PART, columns // PART) for rows, columns in found)


def step_of_torch(gradient: Tensor) -> tuple[Callable[[], object], Tensor]:
    """A step, and the parameter it changes."""
    parameter = torch.nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient
    return torch.optim.Muon([parameter], lr=1.0, weight_decay=0.0).step, parameter.data


def step_of_ours(gradient: Tensor, rule: Muon) -> tuple[Callable[[], object], Tensor]:
    """A step, and the parameter it changes."""
    parameter, options = torch.zeros_like(gradient), rule.defaults
    state = {"momentum": torch.zeros(gradient.shape)}

    @torch.no_grad()
    def step() -> None:
        batch = rule.prepare(gradient, state, options)[None].float()
        (update,) = rule.compute(batch, [{}], options, refresh=[False])
        rule.apply(parameter, update, options, (gradient.shape[0], gradient.shape[1]))

    return step, parameter


def medians(calls: list[Callable[[], object]]) -> list[float]:
    """Milliseconds of each, called in turn."""
    took: list[list[float]] = [[] for _ in calls]
    for turn in range(TURNS + 2):
        for call, seconds in zip(calls, took, strict=True):
            start = time.process_time()
            call()
            if turn > 1:
                seconds.append(time.process_time() - start)
    return [1000 * median(each) for each in took]


def polynomial(gradient: Tensor) -> Tensor:
    """Update without rounding."""
    left, singular, right = torch.linalg.svd(gradient.double(), full_matrices=False)
    singular /= singular.norm()
    for _ in range(5):
        singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
    return left * singular @ right


def rows() -> Iterator[str]:
    for shape in shapes():
        gradient = torch.randn(shape).bfloat16()
        rules = [Muon(lr=1.0, weight_decay=0.0, kernel=kernel, dtype=dtype) for kernel, dtype in CASES]  # type: ignore[arg-type]
        made = [step_of_torch(gradient), *(step_of_ours(gradient, each) for each in rules)]
        exact = polynomial(gradient) * max(1, shape[0] / shape[1]) ** 0.5
        errors = []
        for step, parameter in made:
            step()
            errors.append(float((parameter.double() + exact).norm() / exact.norm()))
        torch_ms, *ours = medians([step for step, _ in made])
        ratios = " | ".join(
            f"{each / torch_ms:.2f} ({error:.0e})" for each, error in zip(ours, errors[1:], strict=True)
        )
        yield f"| {shape[0]} x {shape[1]} | {torch_ms:.2f} ({errors[0]:.0e}) | {ratios} |"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {platform.machine()}, load average {os.getloadavg()[0]:.1f}, one thread")
    print(f"| shape | torch ms (error) | {' | '.join(f'{kernel} {dtype}' for kernel, dtype in CASES)} |")
    print(f"|{'--|' * (2 + len(CASES))}")
    for row in rows():
        print(row, flush=True)


if __name__ == "__main__":
    main()
