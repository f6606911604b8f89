"""A TensorFlow program: fit a small network to a curve, alone at a desk or in a gang of any size.

`python train.py` runs it here and now; `gangline run` runs the commit, and starts it again from its newest save after a
fault. Every process takes its share of each batch; MultiWorkerMirroredStrategy sums the gradients over all of them.
"""

import io
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from gangline.train import Program

WIDTH = 64


class Network(tf.Module):
    def __init__(self, seed):
        super().__init__()
        random = tf.random.Generator.from_seed(seed)
        self.w1 = tf.Variable(random.normal((1, WIDTH)))
        self.b1 = tf.Variable(tf.zeros(WIDTH))
        self.w2 = tf.Variable(random.normal((WIDTH, 1)) / WIDTH**0.5)
        self.b2 = tf.Variable(tf.zeros(1))

    def squared_error(self, x, y):
        hidden = tf.tanh(x @ self.w1 + self.b1)
        return tf.reduce_sum((hidden @ self.w2 + self.b2 - y) ** 2)


def samples(indices):
    x = (np.asarray(indices, np.float32)[:, None] % 1024) / 256 - 2
    return x, np.sin(3 * x) + x / 2


def main():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # of the workers in TF_CONFIG; must come first
    with Program(steps=200, global_batch=64) as program:
        with strategy.scope():
            network = Network(program.seed)
            variables = network.trainable_variables
        if (folder := program.resume()) is not None:
            with np.load(folder / "weights.npz", allow_pickle=False) as saved:
                for number, variable in enumerate(variables):
                    variable.assign(saved[str(number)])

        @tf.function
        def update(x, y):
            """One step on this worker's share of the batch; the loss of the whole batch."""

            def on_worker(x, y):
                with tf.GradientTape() as tape:
                    loss = network.squared_error(x, y) / program.global_batch
                gradients = tape.gradient(loss, variables)
                workers = tf.distribute.get_replica_context()
                *gradients, loss = workers.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, loss])
                for variable, gradient in zip(variables, gradients, strict=True):
                    variable.assign_sub(0.01 * gradient)
                return loss

            return strategy.run(on_worker, args=(x, y))

        share = program.global_batch // program.world_size
        while program.has_more:
            start = program.step_number * program.global_batch + program.rank * share
            x, y = samples(np.arange(start, start + share) * 37)
            program.step(loss=float(update(tf.constant(x), tf.constant(y))))
            if program.save_due:
                program.save({"weights.npz": packed(variables)})
        x, y = samples(np.arange(512) * 2 + 1)
        program.report(eval_loss=float(network.squared_error(tf.constant(x), tf.constant(y))) / len(x))


def packed(variables):
    out = io.BytesIO()
    np.savez(out, **{str(number): variable.numpy() for number, variable in enumerate(variables)})
    return out.getvalue()


if __name__ == "__main__":
    main()
