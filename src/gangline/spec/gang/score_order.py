"""What the ranks of a gang of role score do: written by its driver, read from the data folder that has the model."""

from dataclasses import dataclass

from gangline.spec.codec import Document

ORDER_FILE, MODEL_FOLDER = "score.json", "model"
"""Names in the data folder of the gang."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreOrder(Document):
    """Shards to score, and how."""

    columns: tuple[str, ...]
    """Columns of the data set."""
    batch: int
    """Rows of one forward pass."""
    outputs: tuple[str, ...] = ()
    """Names of those that are kept; empty: all."""
    shards: tuple[tuple[str, str], ...]
    """Digest of the shard, and name of its output."""

    @staticmethod
    def output_key(run_prefix: str, name: str) -> str:
        """Where the output of that name lies, which no one believes until the driver has checked it."""
        return f"{run_prefix}/scores/{name}.arrow"
