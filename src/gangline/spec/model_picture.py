"""Picture of a model: its parts in order, their weights, and how the plan cuts them. Plain data."""

from dataclasses import dataclass

from gangline.spec.codec import Document
from gangline.spec.mesh import Mesh


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLayer:
    """One module with weights of its own."""

    name: str
    """Inside its part."""
    kind: str
    shape: tuple[int, ...]
    """Shape of its largest weight."""
    parameters: int
    rule: str = ""
    """Word of tensor parallelism; empty: every tensor-parallel peer has it whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPart:
    """A block, as many in a row as are alike, or what comes before and after the blocks."""

    name: str
    last: str = ""
    """Name of the last one of several."""
    kind: str
    repeats: int = 1
    is_block: bool = True
    parameters: int
    """Parameters of one of them."""
    layers: tuple[ModelLayer, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPicture(Document):
    """Layers of a model as a plan divides them: what the page of the model draws."""

    schema: int = 1
    kind: str
    """Class of the model."""
    parameters: int
    plan: str
    strategy: str
    mesh: Mesh
    parts: tuple[ModelPart, ...] = ()


def picture_key(gang_prefix: str) -> str:
    """Store key of the picture that a gang leaves."""
    return f"{gang_prefix}/{MODEL_PICTURE}"


MODEL_PICTURE = "model.json"
