"""Lines of a plan that say which figures of a built-in kind of GPU are published and which are assumed."""

from collections.abc import Iterator

from gangline.planner.known_gpus import KnownGpu, assumptions
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.units import format_bytes


def known_gpu_lines(site: Site, inventory: Inventory) -> Iterator[str]:
    """Two lines for each kind of `inventory` that `site` does not describe itself."""
    for kind in inventory.kinds:
        name = kind.gpus.name if kind.gpus else ""
        if isinstance(table := site.gpu.get(name), KnownGpu):
            yield f"published {name}: {published_words(table)} ({table.published.source})"
            yield f"assumed   {name}: {', '.join(_assumed(table))}; [gpu.{name}] of site.toml states yours"


def published_words(table: KnownGpu) -> str:
    """`80 GB at 3.35 TB/s, 989 TFLOP/s in bf16 and 67 in fp32, NVLink of 450 GB/s each way`."""
    kind = table.published
    half = next(name for name in ("bf16", "fp16") if name in kind.flops_per_second)
    peaks = [kind.flops_per_second[name] / 1e12 for name in (half, "fp32")]
    memory = (kind.memory_bytes_per_second or 0.0) / 1e12
    return (
        f"{format_bytes(table.memory_bytes)} at {memory:.4g} TB/s, {peaks[0]:.5g} TFLOP/s in {half} and {peaks[1]:.4g} "
        f"in fp32, {kind.link} of {format_bytes(kind.link_bytes_per_second)}/s each way"
    )


def _assumed(table: KnownGpu) -> Iterator[str]:
    value = assumptions()

    def share(key: str) -> str:
        return f"{value[key] * 100:.0f} %"

    yield f"{share('flops_per_second')} of these FLOP/s"
    yield f"{share('memory_bytes_per_second')} of the memory's rate"
    if "link_bytes_per_second" in table.assumed:
        yield f"{share('link_bytes_per_second')} of the links"
    if "network_bytes_per_second" in table.assumed:
        gigabits = table.published.nic_bytes_per_second * 8 / 1e9
        yield f"{share('network_bytes_per_second')} of {gigabits:.4g} Gb/s of network a GPU"
    for key, where in (("link_latency_seconds", "inside a server"), ("network_latency_seconds", "between servers")):
        if key in table.assumed:
            yield f"{value[key] * 1e6:.0f} µs a message {where}"
