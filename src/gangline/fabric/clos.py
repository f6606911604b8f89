"""Switches, cables and optics of a folded Clos network that blocks nothing. Pure.

Every switch has `radix` ports. In a leaf and a spine half of them point down and half up; a core has all of them down.
"""

from dataclasses import dataclass

from gangline.errors import ConfigError


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
        """Of all tiers."""
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
