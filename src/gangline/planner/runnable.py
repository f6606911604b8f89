"""What of a line the runtime carries out today. An option that would be ignored in silence is refused instead."""

from collections.abc import Iterator

from gangline.errors import ConfigError
from gangline.spec.line import Line

RUNNABLE: frozenset[str] = frozenset({"none", "ddp", "zero2", "fsdp", "hsdp"})
"""Strategies that the runtime executes."""


def require_runnable(strategy: str, supported: frozenset[str], key: str = "train.strategy") -> None:
    """Refuse a strategy that the runtime cannot run, naming those it can."""
    name = "fsdp" if strategy == "zero3" else strategy
    if name not in supported:
        works = ", ".join(sorted(supported))
        raise ConfigError(f'{key}: "{strategy}" is not run by this runtime yet; {works} or "auto" works')


def require_options(line: Line, supported: frozenset[str]) -> None:
    """Refuse options that the runtime does not execute, all of them together, before anything is spent.

    Raises:
        ConfigError: With a line for each.
    """
    if line.prove.plan not in ("auto", "off"):
        require_runnable(line.prove.plan, supported, key="prove.plan")
    refused = [
        f"{key}: {found!r} is not carried out by this runtime yet; {works}" for key, found, works in _unknown(line)
    ]
    if refused:
        raise ConfigError("\n".join(refused))


def _unknown(line: Line) -> Iterator[tuple[str, object, str]]:
    """Key, value and what works instead."""
    train = line.train
    if train.compression.kind != "none":
        yield "train.compression.kind", train.compression.kind, '"none" works'
    if train.memory.activation_checkpointing not in ("auto", "none"):
        key = "train.memory.activation_checkpointing"
        yield key, train.memory.activation_checkpointing, '"none" and a smaller micro_batch work'
    if train.memory.loss_chunks not in ("auto", 1):
        yield "train.memory.loss_chunks", train.memory.loss_chunks, "1 works"
    if train.memory.offload not in ("auto", "none"):
        yield "train.memory.offload", train.memory.offload, '"none" works, fsdp needs less memory'
    if train.recovery.mode != "restart":
        yield "train.recovery.mode", train.recovery.mode, '"restart" works'
