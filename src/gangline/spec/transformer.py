"""Shape of a decoder-only transformer, from which its parameters follow: a model that no machine here has to hold."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

MOST_COUNT, MOST_WIDTH = 10_000, 1_000_000_000
"""Bounds on layers, heads and experts, and on widths: beyond them a number was mistyped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transformer:
    """Widths and counts as model cards give them."""

    layers: int
    """Blocks, all alike."""
    width: int
    """Width of a token between blocks."""
    heads: int
    """Query heads of the attention of a block."""
    key_value_heads: int | None = None
    """Key and value heads; none: as many as query heads."""
    head_width: int | None = None
    """Width of one head; none: width / heads."""
    feed_width: int
    """Width of the feed-forward half of a block, of one expert where there are several."""
    vocabulary: int
    """Tokens that the embedding knows."""
    sequence: int
    """Tokens of one sample."""
    gated: bool = True
    """Feed-forward has three matrices (SwiGLU), not two."""
    tied: bool = False
    """The head uses the embedding's weights."""
    experts: int = 1
    """Feed-forward networks of a block, of which a router chooses."""
    active_experts: int = 1
    """Experts that a token goes through."""

    def problems(self) -> Iterator[tuple[str, str, object]]:
        """Field, what is wanted of it, and what it is, for each rule that is broken."""
        for field in fields(self):
            value = getattr(self, field.name)
            most = MOST_COUNT if field.name in ("layers", "heads", "experts", "active_experts") else MOST_WIDTH
            if isinstance(value, int) and not isinstance(value, bool) and not 1 <= value <= most:
                yield field.name, f"a number from 1 to {most:,}", value
        if self.heads > 0 and self.head_width is None and self.width % self.heads:
            yield "width", f"a multiple of the {self.heads} heads, or head_width besides", self.width
        if self.heads % self.asked_heads:
            yield "key_value_heads", f"a divisor of the {self.heads} heads", self.key_value_heads
        if self.active_experts > self.experts:
            yield "active_experts", f"at most the {self.experts} experts", self.active_experts

    @property
    def asked_heads(self) -> int:
        """Heads that are asked, at least 1."""
        return max(1, self.heads if self.key_value_heads is None else self.key_value_heads)

    @property
    def query_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self._head

    @property
    def key_width(self) -> int:
        """Width of all key heads; values have as much."""
        return self.asked_heads * self._head

    @property
    def _head(self) -> int:
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def attention_matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of those of a block, by name."""
        return {
            "q": (self.query_width, self.width), "k": (self.key_width, self.width), "v": (self.key_width, self.width),
            "o": (self.width, self.query_width),
        }  # fmt: skip

    @property
    def feed_matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of those of one feed-forward network, by name."""
        gate = {"gate": (self.feed_width, self.width)} if self.gated else {}
        return {**gate, "up": (self.feed_width, self.width), "down": (self.width, self.feed_width)}

    @property
    def norm_parameters(self) -> int:
        """Parameters of the two norms of a block."""
        return 2 * self.width

    @property
    def attention_parameters(self) -> int:
        """Parameters of the four matrices of attention in a block."""
        return 2 * self.width * self.query_width + 2 * self.width * self.key_width

    @property
    def expert_parameters(self) -> int:
        """Parameters of one feed-forward network."""
        return (3 if self.gated else 2) * self.width * self.feed_width

    @property
    def router_parameters(self) -> int:
        """Parameters of the router of a block; 0: it has one expert."""
        return self.width * self.experts if self.experts > 1 else 0

    @property
    def block_parameters(self) -> int:
        """Parameters of one block, all its experts included."""
        return (
            self.attention_parameters
            + self.experts * self.expert_parameters
            + self.router_parameters
            + self.norm_parameters
        )

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding; an untied head has as many."""
        return self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; the last norm is among them."""
        ends = (1 if self.tied else 2) * self.embedding_parameters + self.width
        return self.layers * self.block_parameters + ends
