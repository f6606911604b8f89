"""What makers publish of their GPUs: dense matrix products, without sparsity, and memory bandwidth.

A GPU that is not here has no published peak: no share of it is shown, and its site.toml may say what it delivers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

_T = 1e12


@dataclass(frozen=True, slots=True)
class Peak:
    """Of one device; nothing is known of what is left out."""

    flops_per_second: Mapping[str, float] = field(default_factory=dict)
    """By precision; fp32 without tensor cores, 16 bits accumulated in 32."""
    memory_bytes_per_second: float | None = None
    source: str = ""
    """Data sheet of the maker."""


def _both(fp32: float, half: float) -> Mapping[str, float]:
    return {"fp32": fp32 * _T, "bf16": half * _T, "fp16": half * _T}


_H100 = "NVIDIA H100 Tensor Core GPU datasheet"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet, nvidia-1758950-r4"
_V100 = "NVIDIA V100 Tensor Core GPU datasheet, 1165301-r5"
_VOLTA_HALF, _VOLTA_PCIE_HALF = 125 * _T, 112 * _T
_PEAKS: tuple[tuple[frozenset[str], frozenset[str], Peak], ...] = tuple(
    (frozenset(has.split()), frozenset(lacks.split()), peak)
    for has, lacks, peak in (
        ("h200", "nvl", Peak(_both(67, 989), 4.8 * _T, "NVIDIA H200 Tensor Core GPU datasheet, SXM")),
        ("h100 pcie", "", Peak(_both(51, 756), 2.0 * _T, f"{_H100}, PCIe")),
        ("h100 hbm3", "nvl", Peak(_both(67, 989), 3.35 * _T, f"{_H100}, SXM")),
        ("a100 sxm4 80gb", "", Peak(_both(19.5, 312), 2.039 * _T, _A100)),
        ("a100 40gb", "", Peak(_both(19.5, 312), 1.555 * _T, _A100)),
        ("a100", "", Peak(_both(19.5, 312), None, _A100)),
        ("l40s", "", Peak(_both(91.6, 362), 0.864 * _T, "NVIDIA L40S datasheet")),
        ("l4", "", Peak(_both(30.3, 121), 0.3 * _T, "NVIDIA L4 Tensor Core GPU datasheet")),
        ("a10", "", Peak(_both(31.2, 125), 0.6 * _T, "NVIDIA A10 Tensor Core GPU datasheet")),
        ("t4", "", Peak({"fp32": 8.1 * _T, "fp16": 65 * _T}, None, "NVIDIA T4 datasheet, 951643")),
        ("v100 pcie", "", Peak({"fp32": 14 * _T, "fp16": _VOLTA_PCIE_HALF}, 0.9 * _T, _V100)),
        ("v100 sxm2", "", Peak({"fp32": 15.7 * _T, "fp16": _VOLTA_HALF}, 0.9 * _T, _V100)),
    )
)
"""Words that the driver's name has, words that it lacks; the first that matches counts."""


def peak_of(name: str) -> Peak | None:
    """Of the GPU that its driver calls `name`; None: not known here."""
    words = set(name.lower().replace("-", " ").replace("_", " ").split())
    return next((peak for has, lacks, peak in _PEAKS if has <= words and not lacks & words), None)
