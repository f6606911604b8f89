"""Which published peak a driver's name stands for, and that an unlike GPU of the same family gets none."""

import pytest
from tests.planner.cases import gpus

from gangline.planner.known_gpus import peak_of
from gangline.planner.pool import open_pool
from gangline.spec.config.site import GpuTable, Site


@pytest.mark.parametrize(
    ("name", "bf16", "memory"),
    [
        ("NVIDIA H200", 989e12, 4.8e12),
        ("NVIDIA H100 80GB HBM3", 989e12, 3.35e12),
        ("NVIDIA-H100-80GB-HBM3", 989e12, 3.35e12),
        ("NVIDIA H100 PCIe", 756e12, 2.0e12),
        ("NVIDIA A100-SXM4-80GB", 312e12, 2.039e12),
        ("NVIDIA A100-PCIE-40GB", 312e12, 1.555e12),
        ("NVIDIA A100 80GB PCIe", 312e12, None),
        ("NVIDIA L40S", 362e12, 864e9),
        ("NVIDIA L4", 121e12, 300e9),
        ("NVIDIA A10", 125e12, 600e9),
        ("NVIDIA A10G", 70e12, 600e9),
        ("NVIDIA B200", 2250e12, 8e12),
        ("AMD Instinct MI300X", 1307.4e12, 5.3e12),
        ("NVIDIA GeForce RTX 4090", 165.2e12, 1.008e12),
    ],
)
def test_a_drivers_name_finds_its_data_sheet(name, bf16, memory):
    peak = peak_of(name)
    assert peak.source
    assert (peak.flops_per_second["bf16"], peak.memory_bytes_per_second) == (bf16, pytest.approx(memory))


def test_what_a_gpu_cannot_do_has_no_rate():
    assert "bf16" not in peak_of("Tesla T4").flops_per_second
    assert "bf16" not in peak_of("Tesla V100-SXM2-16GB").flops_per_second


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H200 NVL", "NVIDIA H100 NVL", "NVIDIA A40", "NVIDIA L40", "NVIDIA GeForce RTX 4090 D", "GB200", "cpu", ""],
)
def test_of_others_nothing_is_made_up(name):
    assert peak_of(name) is None
    assert open_pool(Site(), gpus(8, name=name)).rates_origin == ""


def test_what_the_site_gives_goes_before_what_is_published():
    table = GpuTable(memory_bytes=80e9, flops_per_second={"bf16": 400e12}, memory_bytes_per_second=2e12)
    pool = open_pool(Site(gpu={"x": table}), gpus(8, name="NVIDIA H100 80GB HBM3"))
    assert (pool.rates_origin, pool.gpu.flops_per_second["bf16"], pool.gpu.memory_bytes_per_second) == (
        "given",
        400e12,
        2e12,
    )
    pool = open_pool(Site(), gpus(8, name="NVIDIA H100 80GB HBM3"))
    assert (pool.rates_origin, pool.gpu.flops_per_second["bf16"], pool.gpu.memory_bytes_per_second) == (
        "published",
        989e12,
        3.35e12,
    )
