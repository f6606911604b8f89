"""Expert-parallel degrees: a rank holds whole experts, so a degree divides the ranks and a model's experts."""

from math import gcd

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.spec.profile import ModelProfile

_SHOWN = 64


def expert_mesh(world: int, profile: ModelProfile | None) -> Mesh:
    """Mesh of as many peers as ranks and experts allow, shards over the rest; not inspected: all ranks are peers.

    Raises:
        ConfigError: No degree above 1 divides both.
    """
    experts = profile.experts if profile else None
    degree = gcd(world, experts) if experts else world
    if degree == 1 < world:
        raise ConfigError(
            f'train.strategy: "ep": wanted a degree that divides the {world} ranks and the {experts} experts, '
            'found none but 1; another number of ranks or "fsdp" works'
        )
    return Mesh(dp_shard=world, ep=degree)


def expert_obstacle(mesh: Mesh, profile: ModelProfile | None) -> str | None:
    """Why the experts of the model cannot be dealt over `mesh.ep` ranks; None: they can, or that is not known."""
    experts = profile.experts if profile else None
    if not experts or experts % mesh.ep == 0:
        return None
    works = ", ".join(str(each) for each in range(1, min(experts, _SHOWN) + 1) if experts % each == 0)
    return f"train.mesh.ep: wanted a divisor of the {experts} experts, found {mesh.ep}; {works} work"
