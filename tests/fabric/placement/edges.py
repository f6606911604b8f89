"""Traffic of a model of 175 billion parameters, by the formulas of its collectives."""

from gangline.fabric.placement.mapping import EdgeBytes


def edges_of_175_billion(replicas: int, stages: int) -> EdgeBytes:
    """A batch of 1,536 sequences of 2,048 tokens, width 12,288, tensor-parallel over the 8 GPUs of a server: a ring
    all-reduce of bf16 gradients, activations and their gradients in bf16."""
    return EdgeBytes(
        data=2 * (replicas - 1) / replicas * 2 * 175e9 / (8 * stages),
        stage=2 * (1536 // replicas) * 2048 * 12_288 * 2 / 8,
    )
