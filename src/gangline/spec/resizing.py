"""The wish for another number of ranks, as it lies in the store: `resize.json` below a run's prefix. Plain data."""

from dataclasses import dataclass

from gangline.spec.codec import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class ResizeRequest(Document):
    """Stands until another one takes its place: a gang that starts anew obeys it, too."""

    schema: int = 1
    ranks: int


def resize_key(run_prefix: str) -> str:
    return f"{run_prefix}/resize.json"
