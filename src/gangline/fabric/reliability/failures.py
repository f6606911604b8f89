"""How often a gang is interrupted: published rates by component, and the probability within a time. Pure."""

from math import expm1, inf, log
from typing import Final

from gangline.errors import ConfigError
from gangline.spec.config.fabric import FailureRates

HOURS_A_MONTH = 730.0
GPUS_A_SERVER = 8
"""GPUs of a server in the fleets that published rates by server."""
NICS_A_LEAF = 64
"""NICs of a leaf whose failure rate is counted."""
OPTICS_A_NIC = 6
"""Both ends of three cables: to the leaf, from there to the spine, from there to the core."""

LLAMA3_CAUSES: Final = {
    "faulty GPU": 148, "GPU HBM3 memory": 72, "software bug": 54, "network switch or cable": 35,
    "host maintenance": 32, "GPU SRAM memory": 19, "GPU system processor": 17, "NIC": 7, "NCCL watchdog timeout": 7,
    "silent data corruption": 6, "GPU thermal interface and sensor": 6, "SSD": 3, "power supply": 3,
    "server chassis": 2, "IO expansion board": 2, "dependency": 2, "CPU": 2, "system memory": 2,
}  # fmt: skip
"""Unplanned interruptions in 54 days on 16,384 GPUs. Source: "The Llama 3 Herd of Models" (2024), arXiv 2407.21783,
table 5; its counts, not its printed shares, which do not agree with them."""


def _server_hours(failures_per_1000_days: float) -> float:
    return 1000 * 24 / failures_per_1000_days


def _hours_of_availability(share: float) -> float:
    """Mean time to a failure where `share` of the devices survive a month."""
    return -HOURS_A_MONTH / log(share)


PRESETS: Final = {
    "llama3": FailureRates(gpu_hours=54 * 24 * 16_384 / sum(LLAMA3_CAUSES.values())),
    "rsc1": FailureRates(server_hours=_server_hours(6.50)),
    "rsc2": FailureRates(server_hours=_server_hours(2.34)),
    "month-99.9": FailureRates(gpu_hours=_hours_of_availability(0.999)),
    "month-99.99": FailureRates(gpu_hours=_hours_of_availability(0.9999)),
    "hpn-link": FailureRates(link_hours=_hours_of_availability(1 - 0.00057)),
    "optics-10M": FailureRates(optic_hours=10e6),
}
"""Rates by name. rsc1, rsc2: Kokolis et al. (2024), arXiv 2410.21680, servers of 8 GPUs; hpn-link: Qian et al.,
"Alibaba HPN" (2024), doi 10.1145/3651890.3672265; optics-10M: the makers' own figure."""


def rates_of(failures: str | FailureRates) -> FailureRates:
    """Rates of a preset by name, or those given.

    Raises:
        ConfigError: There is no preset of that name.
    """
    if isinstance(failures, FailureRates):
        return failures
    if failures not in PRESETS:
        raise ConfigError(f"wanted a preset of failures, found {failures!r}; there are {', '.join(PRESETS)}")
    return PRESETS[failures]


def interruption_rate(
    failures: str | FailureRates, *, gpus: int, servers: int | None = None, optics: int = 0, links: int = 0,
    leaves: int = 0,
) -> float:  # fmt: skip
    """Interruptions an hour of a gang that one failure of any of its parts stops.

    Args:
        failures: A preset by name, or rates.
        gpus: That the gang uses.
        servers: Of it; None: one for each 8 GPUs.
        optics: Optical modules on the way of its traffic.
        links: Links of its NICs to leaves.
        leaves: Leaf switches whose NICs have no second leaf.
    """
    rates = rates_of(failures)
    hosts = -(-gpus // GPUS_A_SERVER) if servers is None else servers
    parts = (
        (gpus, rates.gpu_hours), (hosts, rates.server_hours), (optics, rates.optic_hours), (links, rates.link_hours),
        (leaves, rates.leaf_hours),
    )  # fmt: skip
    return sum(count / hours for count, hours in parts if hours is not None)


def gang_rate(failures: str | FailureRates, *, gpus: int, servers: int, dual_homed: bool = False) -> float:
    """Interruptions an hour of a gang, with what a network of three tiers has for its NICs, one a GPU.

    Args:
        failures: A preset by name, or rates.
        gpus: Of the gang.
        servers: Of the gang; one alone sends nothing over the network, whose failures do not stop it.
        dual_homed: Every NIC hangs on two leaves, so that no leaf alone stops a gang.
    """
    nics = gpus if servers > 1 else 0
    return interruption_rate(
        failures, gpus=gpus, servers=servers, links=nics, optics=OPTICS_A_NIC * nics,
        leaves=0 if dual_homed else -(-nics // NICS_A_LEAF),
    )  # fmt: skip


def mean_hours_between(rate_per_hour: float) -> float:
    """Mean hours between interruptions; infinite where there are none."""
    return 1 / rate_per_hour if rate_per_hour else inf


def interrupt_probability(rate_per_hour: float, hours: float) -> float:
    """Probability of at least one interruption within `hours`."""
    return -expm1(-rate_per_hour * hours)


def longest_loss_seconds(timeout: int) -> float:
    """Loss of a path that a connection over InfiniBand or RoCE survives, at this NCCL_IB_TIMEOUT: 4.096 us x 2^timeout,
    for each of the 7 tries of NCCL_IB_RETRY_CNT."""
    return 4.096e-6 * 2.0**timeout * 7
