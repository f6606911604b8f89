"""What GPU time costs at a site: the one price that can be told without guessing."""

from dataclasses import dataclass

from gangline.spec.record import Record
from gangline.spec.site import Site


@dataclass(frozen=True, slots=True)
class Price:
    per_gpu_hour: float
    currency: str


def price_at(site: Site) -> Price | None:
    """Price of a GPU hour where the site has one kind of GPU and says its price; else None, never a guess."""
    prices = [gpu.price_per_hour for gpu in site.gpu.values()]
    if len(prices) != 1 or prices[0] is None:
        return None
    return Price(prices[0], site.money.currency)


def gpu_seconds(record: Record) -> float:
    """GPU time that a run held; none on CPU."""
    return record.ledger.allocated_seconds if record.ledger and record.ledger.resource == "gpu" else 0.0


def cost_of(record: Record, price: Price) -> float:
    return gpu_seconds(record) / 3600 * price.per_gpu_hour
