"""The queue of a server: bounded, in batches, one thread; swapped and drained without a loss."""

import threading
import time

import numpy as np
import pytest

from gangline.infer.batch_queue import BatchQueue
from gangline.infer.handler import ModelCallError, QueueFullError, RequestError
from gangline.train.model.published import PublishedModel, TensorSpec

X = {"x": TensorSpec("float32", (-1, 2))}


class Model:
    """Doubles; holds each batch until it may go, and remembers what it was asked."""

    def __init__(self, factor=2, held=False):
        self.factor, self.batches, self.threads = factor, [], set()
        self.may_go = threading.Event()
        if not held:
            self.may_go.set()

    def predict(self, batch):
        self.may_go.wait(10)
        self.batches.append(len(batch["x"]))
        self.threads.add(threading.get_ident())
        return {"y": batch["x"] * self.factor}

    def open(self):
        return PublishedModel(inputs=X, outputs={}, predict=self.predict)


def rows(*values):
    return {"x": np.array([[value, value] for value in values], "float32")}


def wait_until(claim):
    until = time.monotonic() + 10
    while not claim() and time.monotonic() < until:
        time.sleep(0.001)
    assert claim()


def test_each_caller_gets_the_rows_that_it_asked_for():
    model = Model(held=True)
    queue = BatchQueue(model.open(), 7, batch=8, wait_seconds=0.05)
    answers = [queue.submit(rows(*range(first, first + count))) for first, count in ((0, 1), (10, 3), (20, 2))]
    model.may_go.set()
    for answer, (first, count) in zip(answers, ((0, 1), (10, 3), (20, 2)), strict=True):
        version, found = answer.result(10)
        assert version == 7
        assert found["y"][:, 0].tolist() == [2 * value for value in range(first, first + count)]
    assert len(model.threads) == 1


def test_a_batch_has_no_more_samples_than_it_may():
    model = Model(held=True)
    queue = BatchQueue(model.open(), 1, batch=4, wait_seconds=0.01)
    answers = [queue.submit(rows(number)) for number in range(11)]
    model.may_go.set()
    for answer in answers:
        answer.result(10)
    assert sum(model.batches) == 11
    assert max(model.batches) <= 4


def test_requests_of_other_shapes_are_no_batch():
    queue = BatchQueue(
        PublishedModel(inputs={}, outputs={}, predict=lambda batch: batch), 1, batch=8, wait_seconds=0.05
    )
    wide, narrow = queue.submit({"x": np.zeros((1, 3))}), queue.submit({"x": np.zeros((1, 2))})
    assert wide.result(10)[1]["x"].shape == (1, 3)
    assert narrow.result(10)[1]["x"].shape == (1, 2)


def test_more_than_may_wait_are_refused_and_none_that_waits_is_lost():
    model = Model(held=True)
    queue = BatchQueue(model.open(), 1, queue=3)
    first = queue.submit(rows(0))
    wait_until(lambda: queue.counts.waiting == 0)
    waiting = [queue.submit(rows(number)) for number in (1, 2, 3)]
    with pytest.raises(QueueFullError, match="3 requests wait"):
        queue.submit(rows(4))
    assert queue.counts.refused == 1
    model.may_go.set()
    assert [each.result(10)[1]["y"][0, 0] for each in (first, *waiting)] == [0, 2, 4, 6]


def test_a_drained_queue_answers_what_it_has_and_refuses_the_rest():
    model = Model(held=True)
    queue = BatchQueue(model.open(), 1)
    waiting = [queue.submit(rows(number)) for number in range(5)]
    drained = threading.Thread(target=queue.drain)
    drained.start()
    wait_until(lambda: queue._ends)
    with pytest.raises(QueueFullError):
        queue.submit(rows(9))
    model.may_go.set()
    drained.join(10)
    assert [each.result(0)[1]["y"][0, 0] for each in waiting] == [0, 2, 4, 6, 8]


def test_a_swap_loses_no_request_and_every_answer_names_its_version():
    queue = BatchQueue(Model(2).open(), 2, batch=4, wait_seconds=0.0, queue=4000)
    answers = []
    for number in range(2000):
        answers.append(queue.submit(rows(number)))
        if number % 200 == 100:
            factor = 3 if queue.version == 2 else 2
            queue.swap(Model(factor).open(), factor)
    for number, answer in enumerate(answers):
        version, found = answer.result(10)
        assert found["y"][0, 0] == version * number


def test_an_error_of_the_model_is_an_id_and_the_next_request_is_answered():
    calls = []

    def predict(batch):
        calls.append(len(batch["x"]))
        if len(calls) == 1:
            raise ValueError("secret of the model")
        return {"y": batch["x"]}

    queue = BatchQueue(PublishedModel(inputs=X, outputs={}, predict=predict), 1)
    with pytest.raises(ModelCallError, match=r"under id [0-9a-f]{8}$"):
        queue.submit(rows(1)).result(10)
    assert queue.submit(rows(1)).result(10)[1]["y"].shape == (1, 2)


def test_without_memory_later_batches_are_halved():
    def predict(batch):
        if len(batch["x"]) > 2:
            raise MemoryError
        return {"y": batch["x"]}

    queue = BatchQueue(PublishedModel(inputs=X, outputs={}, predict=predict), 1, batch=4, wait_seconds=0.2)
    first = [queue.submit(rows(number)) for number in range(4)]
    for each in first:
        with pytest.raises(ModelCallError):
            each.result(10)
    for each in [queue.submit(rows(number)) for number in range(4)]:
        each.result(10)


def test_a_model_that_lost_rows_answers_no_request():
    queue = BatchQueue(PublishedModel(inputs=X, outputs={}, predict=lambda batch: {"y": batch["x"][:1]}), 1)
    with pytest.raises(ModelCallError):
        queue.submit(rows(1, 2)).result(10)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({"y": np.zeros((1, 2), "float32")}, "missing \\['x'\\], unknown \\['y'\\]"),
        ({"x": np.zeros((1, 2), "int64")}, "wanted FP32, found INT64"),
        ({"x": np.zeros((1, 3), "float32")}, "wanted shape \\[-1, 2\\], found \\[1, 3\\]"),
        ({"x": np.zeros((0, 2), "float32")}, "at least one"),
        ({"x": np.zeros((), "float32")}, "wanted shape"),
    ],
)
def test_a_request_of_other_inputs_is_refused_with_what_was_wanted(batch, says):
    queue = BatchQueue(Model().open(), 1)
    with pytest.raises(RequestError, match=says):
        queue.submit(batch)
