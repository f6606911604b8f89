"""Degrees of the axes that cut a layer: tensor-parallel peers, and ranks that hold whole experts."""

from math import gcd

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.spec.profile import ModelProfile

NO_RULES = (
    "wanted rules in hints.tensor of the task, found none; give each Linear of a block a word, such as colwise and "
    'then rowwise, or use "fsdp"'
)


def tensor_mesh(world: int, nodes: int, profile: ModelProfile | None, *, strategy: str = "tp") -> Mesh:
    """Degrees of `world` ranks on `nodes` nodes; of a model that was not inspected all ranks of a node share a layer.

    `strategy` is the name that asks.

    Raises:
        ConfigError: The model cannot be cut at all, or there is one rank only.
    """
    if world < 2:
        raise ConfigError(f'train.strategy: "{strategy}" wants two ranks or more, found {world}; "none" works on one')
    cuts = profile.tensor_cuts if profile else None
    if cuts == 0:
        raise ConfigError(f'train.strategy: "{strategy}": {NO_RULES}')
    node = world // nodes
    degree = max(each for each in range(1, node + 1) if node % each == 0 and (cuts is None or cuts % each == 0))
    if degree == 1:
        raise ConfigError(
            f'train.strategy: "{strategy}": wanted a degree that divides the {node} ranks of a node and {cuts}, the '
            "most parts that heads and widths of the model divide into, found none above 1; other ranks, another "
            'width or "fsdp" work'
        )
    return Mesh(dp_shard=world // degree, tp=degree)


def require_cuts(tp: int, profile: ModelProfile | None) -> None:
    """Refuse a degree of `train.mesh` that the model cannot be cut into, before anything is queued."""
    cuts = profile.tensor_cuts if profile else None
    if tp == 1 or cuts is None or (cuts and cuts % tp == 0):
        return
    if cuts == 0:
        raise ConfigError(f"train.mesh.tp = {tp}: {NO_RULES}")
    raise ConfigError(
        f"train.mesh.tp: wanted a divisor of {cuts}, of which heads and widths of the model are multiples, found {tp}; "
        f"{degrees_that_work(cuts)}"
    )


def degrees_that_work(cuts: int) -> str:
    """Words for the degrees of what can be cut into so many parts, and so into each of the divisors."""
    if cuts == 1:
        return "only 1 works"
    return ", ".join(str(each) for each in range(1, min(cuts, 64) + 1) if cuts % each == 0) + " work"


def require_one_node(mesh: Mesh, per_node: int) -> None:
    """Refuse tensor-parallel peers, which are consecutive ranks, on several nodes: they exchange activations in every
    block."""
    if mesh.tp == 1 or per_node % mesh.tp == 0:
        return
    works = ", ".join(str(each) for each in range(1, mesh.tp) if mesh.tp % each == 0 and per_node % each == 0)
    raise ConfigError(
        f"train.mesh.tp: wanted peers on one node, found {mesh.tp} where a node has {per_node} ranks; {works} work"
    )


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
    works = degrees_that_work(experts)
    return f"train.mesh.ep: wanted a divisor of the {experts} experts, found {mesh.ep}; {works}"
