"""Whether names of sites, labels and drivers mean the same GPU."""

import pytest

from gangline.spec.devices import other_kinds


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        ("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3"),
        ("a100", "NVIDIA A100-SXM4-40GB"),
        ("H100-SXM", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA A100-SXM4-40GB"),
        ("Tesla-T4-SHARED", "Tesla T4"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("gh200-96gb", "NVIDIA GH200 480GB"),
        ("MI300X", "AMD Instinct MI300X"),
        ("gold", "NVIDIA A100-SXM4-80GB"),
        ("", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_the_same_kind_or_a_name_that_says_none(planned, found):
    assert other_kinds(planned, [found]) == ()


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        ("h100", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"),
        ("H100-SXM", "NVIDIA H100 PCIe"),
        ("l40", "NVIDIA L40S"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA-RTX-A6000", "NVIDIA RTX 6000 Ada Generation"),
    ],
)
def test_another_model_memory_or_form_is_another_kind(planned, found):
    assert other_kinds(planned, ["gold", found]) == (found,)
