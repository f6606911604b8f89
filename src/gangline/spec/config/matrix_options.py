"""Options of matrix rules and of their plans as a line has them: each with its default and its bounds, once.

The rules of `optim.rules` and the plans of `optim.plan` are made of these classes.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from gangline.errors import ConfigError
from gangline.spec.bounds import Bound
from gangline.spec.config.option_tables import OptionTable

Amount = Annotated[float, Bound(least=0, words="0 or more")]
Decay = Annotated[float, Bound(least=0, below=1, words="from 0 to below 1")]
Size = Annotated[int, Bound(least=0, words="0 or more")]
Count = Annotated[int, Bound(least=1, words="1 or more")]

AdjustLr = Literal["original", "match_rms_adamw", "spectral_unclamped"]
MuonKernel = Literal["standard", "symmetric", "gram"]
ProductDtype = Literal["bfloat16", "float32"]
GeometryChoice = Literal["auto", "contiguous", "permuted", "owner"]
ParameterKind = Literal["matrix", "elementwise"]
SplitKind = Literal["none", "gate_up", "gate_up_interleaved", "qkv", "qkv_by_group", "stack"]

REPEATS_ALONE = (
    'with copies = "repeat" each copy computes all updates itself, so that overlap = "forward" and team = "auto" have '
    'nothing to share; leave them out, or use "share"'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonOptions(OptionTable):
    """Options as those of `torch.optim.Muon`; `eps`, `kernel` and `dtype` say where they differ.

    Raises:
        ConfigError: An option is out of its range.
    """

    lr: Amount = 1e-3
    """Learning rate."""
    weight_decay: Amount = 0.1
    """Decay of the weights in a step, in units of `lr`."""
    momentum: Amount = 0.95
    """Decay of the averaged gradient."""
    nesterov: bool = True
    """Whether the gradient of the step counts in addition to the average."""
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    """Coefficients of the Newton-Schulz polynomial."""
    eps: Amount = 0.0
    """Smaller norms count as it. torch has 1e-7: below it, the update shrinks with the gradient."""
    ns_steps: Annotated[int, Bound(least=1, most=99, words="from 1 to 99")] = 5
    """Newton-Schulz iterations."""
    adjust_lr_fn: AdjustLr | None = None
    """Factor of `lr` by the shape of the whole matrix; none: `original`."""
    kernel: MuonKernel = "standard"
    """How the products are computed."""
    dtype: ProductDtype = "bfloat16"
    """Type of the products; momentum is float32 in both cases, whatever the parameter is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShampooOptions(OptionTable):
    """Averages of gradients and factors, roots refreshed now and then.

    Raises:
        ConfigError: An option is out of its range.
    """

    lr: Amount = 1e-3
    """Learning rate."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay of the gradient and of the factors."""
    eps: Annotated[float, Bound(above=0)] = 1e-4
    """Added to the eigenvalues of a factor, as a share of the largest: below 1e-7 it is lost in those of float32."""
    weight_decay: Amount = 0.01
    """Decay of the weights in a step, in units of `lr`."""
    refresh_every: Count = 10
    """Steps from one computation of the roots to the next; the first step has one of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SoapOptions(OptionTable):
    """Options of the authors' code, `refresh_every` being its `precondition_frequency`.

    Raises:
        ConfigError: An option is out of its range.
    """

    lr: Amount = 3e-3
    """Learning rate."""
    betas: tuple[Decay, Decay] = (0.95, 0.95)
    """Decay of the two moments."""
    shampoo_beta: Decay = 0.95
    """Decay of the factors."""
    eps: Amount = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Amount = 0.01
    """Decay of the weights in a step, in units of `lr`."""
    refresh_every: Count = 10
    """Steps from one correction of the bases to the next; the first step makes them."""
    largest_side: Count = 10_000
    """Longer sides keep the basis in which the parameter is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixPlanOptions(OptionTable):
    """What the owners of matrices are planned for.

    Raises:
        ConfigError: An option is out of its range, or does not go with another.
    """

    alpha: Annotated[float, Bound(least=0, most=1, words="from 0 to 1")] = 1.0
    """Weight of balanced compute (1) against cheap synchronization (0)."""
    bucket_elements: Count | None = None
    """A bucket closes once it has as many, on each rank; none: 400 million, or a bucket for each block of the model
    where updates travel during the forward pass."""
    owner_memory_bytes: Size = 0
    """Limit of the state that a rank keeps as owner; 0: no limit."""
    c_max_bytes: Count = 1 << 30
    """Limit of the matrices that a host assembles in one micro-group."""
    geometry: GeometryChoice = "auto"
    """How gradients of a bucket reach owners and updates return; auto: what is modelled to cost least."""
    oversize: Literal["own_slot", "error"] = "own_slot"
    """What becomes of a matrix above `c_max_bytes`."""
    team: Literal["off", "auto"] = "off"
    """auto: matrices too large for balance are shared by ranks; their updates are not bitwise those of one owner."""
    refresh: Literal["staggered", "together"] = "staggered"
    """When roots and bases are refreshed: spread over the steps, by owner, or all in one, whatever the plan."""
    batch: Count = 1
    """Matrices of one shape that are updated together, at most; above 1 their bits may depend on the plan."""
    copies: Literal["share", "repeat"] = "share"
    """What ranks with copies of a matrix do: one of them computes its update, or each does and keeps all state."""
    overlap: Literal["off", "forward"] = "off"
    """forward: updates travel from owners to copies during the next forward pass, which waits for those it needs."""
    element_bytes: Literal[2, 4, 8] = 4
    """Bytes of an element of the gradients and updates that travel."""

    def __post_init__(self) -> None:
        OptionTable.__post_init__(self)
        if self.copies == "repeat" and (self.overlap == "forward" or self.team == "auto"):
            raise ConfigError(f"optimizer.copies: {REPEATS_ALONE}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """What becomes of parameters whose names match a pattern; it goes before everything else."""

    match: str
    """`layers.*.mlp.fc1.weight`: `*` is any text, dots included."""
    kind: ParameterKind = "matrix"
    """Which rule updates them."""
    split: SplitKind = "none"
    """How a fused parameter falls into matrices."""
    heads: Size = 0
    """Number of query heads; of `qkv` and `qkv_by_group` alone, as the two below."""
    kv_heads: Size = 0
    """Number of heads of keys and values."""
    head_dim: Size = 0
    """Rows of a head."""


MatrixOptions = MuonOptions | ShampooOptions | SoapOptions
RULES: dict[str, type[MatrixOptions]] = {"muon": MuonOptions, "shampoo": ShampooOptions, "soap": SoapOptions}
"""Options of each rule that lines know by name."""
