"""A JAX program: fit a small network to a curve, alone at a desk or in a gang of any size.

`python train.py` runs it here and now; `gangline run` runs the commit, and starts it again from its newest save after a
fault. Every process takes its share of each batch; JAX averages the gradients over all of them.
"""

import io

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from gangline.train import Program

WIDTH = 64


def first_weights(seed):
    keys = jax.random.split(jax.random.key(seed), 2)
    return {
        "w1": jax.random.normal(keys[0], (1, WIDTH)),
        "b1": jnp.zeros(WIDTH),
        "w2": jax.random.normal(keys[1], (WIDTH, 1)) / WIDTH**0.5,
        "b2": jnp.zeros(1),
    }


def loss_of(weights, x, y):
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    return jnp.mean((hidden @ weights["w2"] + weights["b2"] - y) ** 2)


@jax.jit
def update(weights, x, y, rate):
    """One step on the whole batch, wherever its parts lie."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
    return jax.tree.map(lambda weight, gradient: weight - rate * gradient, weights, gradients), loss


def samples(indices):
    x = (np.asarray(indices, np.float32)[:, None] % 1024) / 256 - 2
    return x, np.sin(3 * x) + x / 2


def main():
    with Program(steps=200, global_batch=64) as program:
        if program.world_size > 1:
            jax.distributed.initialize(num_processes=program.world_size, process_id=program.rank)
        everywhere = jax.make_mesh((jax.device_count(),), ("data",))
        whole, split = NamedSharding(everywhere, PartitionSpec()), NamedSharding(everywhere, PartitionSpec("data"))
        weights = first_weights(program.seed)
        if (folder := program.resume()) is not None:
            with np.load(folder / "weights.npz", allow_pickle=False) as saved:
                weights = {name: saved[name] for name in saved.files}
        weights = jax.device_put(weights, whole)
        while program.has_more:
            start = program.step_number * program.global_batch
            batch = samples(np.arange(start, start + program.global_batch) * 37)
            share = program.global_batch // program.world_size
            mine = slice(program.rank * share, (program.rank + 1) * share)
            x, y = (jax.make_array_from_process_local_data(split, part[mine]) for part in batch)
            weights, loss = update(weights, x, y, 0.01)
            program.step(loss=float(loss))
            if program.save_due:
                program.save({"weights.npz": packed(weights)})
        x, y = samples(np.arange(512) * 2 + 1)
        program.report(eval_loss=float(loss_of(weights, jax.device_put(x, whole), jax.device_put(y, whole))))


def packed(weights):
    out = io.BytesIO()
    np.savez(out, **{name: np.asarray(weight) for name, weight in weights.items()})
    return out.getvalue()


if __name__ == "__main__":
    main()
