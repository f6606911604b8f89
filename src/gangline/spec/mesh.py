"""Shape of the device mesh: pure arithmetic, no devices."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from math import lcm, prod
from typing import Literal

from gangline.errors import ConfigError

Axis = Literal["pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mesh:
    """Degree of each mesh axis, slowest-varying first: `tp` peers are consecutive ranks. `ep` divides dp_shard x cp."""

    pp: int = 1
    """Pipeline stages."""
    dp_replicate: int = 1
    """Full copies of the model that average their gradients."""
    dp_shard: int = 1
    """FSDP shards of every parameter."""
    cp: int = 1
    """Context-parallel pieces of a sequence."""
    tp: int = 1
    """Tensor-parallel shards; fastest when all fit in one node."""
    ep: int = 1
    """Expert groups laid over dp_shard x cp; no axis of its own."""

    def __post_init__(self) -> None:
        if min(astuple(self)) < 1:
            raise ConfigError(f"train.mesh: every degree is at least 1, found {self}; leave an unused axis out")
        if (self.dp_shard * self.cp) % self.ep:
            raise ConfigError(f"train.mesh.ep = {self.ep} must divide dp_shard x cp = {self.dp_shard * self.cp}")

    @property
    def axes(self) -> dict[str, int]:
        """Axis name to degree, in rank order; `ep` is not among them."""
        return {name: getattr(self, name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}

    @property
    def world_size(self) -> int:
        """Ranks the mesh needs."""
        return self.pp * self.dp_replicate * self.dp_shard * self.cp * self.tp

    @property
    def data_parallel(self) -> int:
        """Ranks that see different samples: dp_replicate x dp_shard."""
        return self.dp_replicate * self.dp_shard

    @property
    def num_axes(self) -> int:
        """Axes with more than one rank."""
        return sum(degree > 1 for degree in self.axes.values())

    @property
    def cuts(self) -> str:
        """`pp2 tp4`: degrees that cut the model; empty: it is whole on each rank, or in shards."""
        return " ".join(f"{axis}{getattr(self, axis)}" for axis in ("pp", "cp", "tp", "ep") if getattr(self, axis) > 1)

    def size_of(self, axes: Iterable[Axis]) -> int:
        """Product of the degrees of some axes; 1 without any."""
        return prod(getattr(self, axis) for axis in axes)

    def tile(self, ranks_per_server: int) -> int:
        """Consecutive servers that hold whole sets of `tp` and `cp` peers, which exchange in every layer.

        Divides the number of servers, where `ranks_per_server` divides the number of ranks.
        """
        return lcm(self.cp * self.tp, ranks_per_server) // ranks_per_server

    def coordinates(self, rank: int) -> dict[str, int]:
        """Place of `rank` on each axis."""
        place: dict[str, int] = {}
        for name, degree in reversed(self.axes.items()):
            rank, place[name] = divmod(rank, degree)
        return {name: place[name] for name in self.axes}

    def data_rank(self, rank: int) -> int:
        """Place of `rank` among those that see different samples; peers on pp, cp and tp share one."""
        place = self.coordinates(rank)
        return place["dp_replicate"] * self.dp_shard + place["dp_shard"]

    def counts_metrics(self, rank: int) -> bool:
        """What it evaluates enters the sums of all: tensor-parallel peers hold the same, only the last place has any.

        Not where losses of a training are counted: a V schedule ends where it began.
        """
        place = self.coordinates(rank)
        return place["tp"] == 0 and place["pp"] == self.pp - 1
