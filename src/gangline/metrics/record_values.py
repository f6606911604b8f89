"""Values computed from a run's record: when it was created and ended, its GPU seconds and their cost."""

from dataclasses import dataclass
from datetime import datetime

from gangline.spec.config.site import Site
from gangline.spec.devices import other_kinds
from gangline.spec.record import Record


@dataclass(frozen=True, slots=True)
class Price:
    """What a GPU costs for an hour, in a currency of the site."""

    per_gpu_hour: float
    currency: str
    gpu: str = ""
    """Whose price it is, as the site calls them."""


def price_at(site: Site) -> Price | None:
    """Price of a GPU hour where the site has one kind of GPU and says its price; else None, never a guess."""
    if len(site.gpu) != 1:
        return None
    [(name, gpu)] = site.gpu.items()
    return None if gpu.price_per_hour is None else Price(gpu.price_per_hour, site.money.currency, name)


def dearest_price(site: Site) -> float | None:
    """Price of an hour of the dearest GPU of the site; None: it has no price."""
    return max((gpu.price_per_hour for gpu in site.gpu.values() if gpu.price_per_hour), default=None)


def gpu_seconds(record: Record) -> float:
    """GPU time that a run held; none on CPU."""
    return record.ledger.allocated_seconds if record.ledger and record.ledger.resource == "gpu" else 0.0


def cost_of(record: Record, price: Price) -> float | None:
    """Cost of the GPU time that the run held, in the price's currency; None: it computed on GPUs of another kind."""
    if record.ran is not None and other_kinds(price.gpu, record.ran.gpus):
        return None
    return gpu_seconds(record) / 3600 * price.per_gpu_hour


def ended_at(record: Record) -> float:
    """Seconds since the epoch at which the last stage of the run ended, else when it was created."""
    times = [info.ended for info in record.stages.values() if info.ended]
    return datetime.fromisoformat(max(times, default=record.run.created)).timestamp()


def created_at(record: Record) -> float:
    """Seconds since the epoch at which the run was created."""
    return datetime.fromisoformat(record.run.created).timestamp()
