"""Switches, cables and optics of a folded Clos network that blocks nothing. Pure.

Every switch has `radix` ports. In a leaf and a spine half of them point down and half up; a core has all of them down.
"""

from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosCounts:
    """Parts of a network."""

    leaves: int
    spines: int
    cores: int
    cables: int
    """NIC to leaf and switch to switch."""

    @property
    def switches(self) -> int:
        """Switches of all tiers."""
        return self.leaves + self.spines + self.cores

    @property
    def optics(self) -> int:
        """Modules: one at each end of a cable."""
        return 2 * self.cables


def clos_counts(nics: int, *, radix: int, tiers: int = 3) -> ClosCounts:
    """Parts that join `nics` NICs at full rate.

    Args:
        radix: Ports of a switch, even.
        tiers: 2 (leaf, spine) or 3 (leaf, spine, core).

    Raises:
        ConfigError: A number is out of its range, or so many NICs need more tiers.
    """
    if nics < 1 or radix < 2 or radix % 2 or tiers not in (2, 3):
        raise ConfigError(
            f"a network wants 1 NIC or more, switches of an even number of ports and 2 or 3 tiers, "
            f"found {nics} NICs, {radix} ports, {tiers} tiers"
        )
    most = 2 * (radix // 2) ** tiers
    if nics > most:
        raise ConfigError(f"{tiers} tiers of {radix} ports join at most {most:,} NICs at full rate, found {nics:,}")
    leaves = -(-2 * nics // radix)
    if tiers == 2:
        return ClosCounts(leaves=leaves, spines=-(-leaves // 2), cores=0, cables=2 * nics)
    return ClosCounts(leaves=leaves, spines=leaves, cores=-(-leaves // 2), cables=3 * nics)


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricCounts:
    """What a fabric has, as far as it is known."""

    servers: int
    gpus: int
    leaves: int
    nic_cables: int
    uplinks: int | None
    """Cables from leaves to spines; None: `leaf_uplinks` is not known."""
    oversubscription: float | None
    """Ports of the fullest leaf down to servers for one up; None: likewise."""


def counts_of(fabric: Fabric) -> FabricCounts:
    """Servers, leaves and cables, from groups and rails."""
    homes = 2 if fabric.dual_homed else 1
    leaves = len(fabric.groups) * fabric.rails * homes
    largest = max((len(group.servers) for group in fabric.groups), default=0)
    return FabricCounts(
        servers=len(fabric.servers),
        gpus=fabric.num_gpus,
        leaves=leaves,
        nic_cables=fabric.num_gpus * homes,
        uplinks=leaves * fabric.leaf_uplinks if fabric.leaf_uplinks else None,
        oversubscription=largest / fabric.leaf_uplinks if fabric.leaf_uplinks else None,
    )
