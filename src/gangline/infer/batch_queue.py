"""The bounded queue of requests and the one thread that runs the model: batches, swap, drain. Knows no kserve."""

import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from gangline.infer.handler import ModelCallError, QueueFullError, RequestError, check_inputs, join, shapes_of, split
from gangline.train.model.published import PublishedModel

if TYPE_CHECKING:
    from numpy import ndarray

    Arrays = dict[str, ndarray]

log = structlog.get_logger()


@dataclass(slots=True)
class Counts:
    """What metrics tell of a queue."""

    waiting: int = 0
    refused: int = 0
    answered: int = 0
    last_samples: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Request:
    batch: "Arrays"
    num_samples: int
    shapes: object
    answer: "Future[tuple[int, Arrays]]" = field(default_factory=Future)
    """Version that answered, and outputs."""


class BatchQueue:
    """Requests wait here for the device; one thread forms batches and runs them with the model of the moment."""

    def __init__(
        self, model: PublishedModel, version: int, *, batch: int = 1, wait_seconds: float = 0.002, queue: int = 64
    ) -> None:
        """Start the thread.

        Args:
            model: Answers.
            version: Its number.
            batch: Most samples of one forward pass; a larger request is a batch of its own.
            wait_seconds: Longest time that a request waits for others of its batch.
            queue: Requests that may wait.
        """
        self.model, self.version, self.counts = model, version, Counts()
        self._most_samples, self._wait_seconds, self._most_waiting = batch, wait_seconds, queue
        self._waiting: deque[_Request] = deque()
        self._changed, self._ends = threading.Condition(), False
        self._thread = threading.Thread(target=self._serve, name="device", daemon=True)
        self._thread.start()

    def submit(self, batch: "Arrays") -> "Future[tuple[int, Arrays]]":
        """Queue a request.

        Raises:
            RequestError: Its inputs are not those of the model.
            QueueFullError: As many wait as may wait; or the queue is drained.
        """
        request = _Request(batch, check_inputs(self.model.inputs, batch), shapes_of(batch))
        with self._changed:
            if self._ends or len(self._waiting) >= self._most_waiting:
                self.counts.refused += 1
                raise QueueFullError(f"{len(self._waiting)} requests wait, at most {self._most_waiting} may")
            self._waiting.append(request)
            self.counts.waiting = len(self._waiting)
            self._changed.notify()
        return request.answer

    def swap(self, model: PublishedModel, version: int) -> None:
        """Let `model` answer from the next batch on; the old one is dropped after its last."""
        with self._changed:
            self.model, self.version = model, version

    def drain(self) -> None:
        """Refuse new requests; returns once those that wait were answered."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join()

    def _serve(self) -> None:
        while (requests := self._next()) is not None:
            with self._changed:
                model, version = self.model, self.version
            self._answer(model, version, requests)
            del model, requests  # the last reference to a model that was swapped

    def _next(self) -> list[_Request] | None:
        """Requests of the next batch; None: drained."""
        with self._changed:
            while not self._waiting:
                if self._ends:
                    return None
                self._changed.wait()
            first = self._waiting[0]
            until, shapes = time.monotonic() + self._wait_seconds, first.shapes
            while not self._ends:
                if (
                    sum(request.num_samples for request in self._waiting if request.shapes == shapes)
                    >= self._most_samples
                ):
                    break
                if not self._changed.wait(until - time.monotonic()) and time.monotonic() >= until:
                    break
            return self._take(shapes)

    def _take(self, shapes: object) -> list[_Request]:
        """The oldest request and those after it that fit into its batch."""
        taken: list[_Request] = []
        kept: deque[_Request] = deque()
        total = 0
        for request in self._waiting:
            fits = request.shapes == shapes and (not taken or total + request.num_samples <= self._most_samples)
            if fits:
                taken.append(request)
                total += request.num_samples
            else:
                kept.append(request)
        self._waiting = kept
        self.counts.waiting = len(kept)
        return taken

    def _answer(self, model: PublishedModel, version: int, requests: Sequence[_Request]) -> None:
        rows = [each.num_samples for each in requests]
        try:
            check_inputs(model.inputs, requests[0].batch)  # the model may be another one than when it was queued
            outputs = split(model.predict(join([each.batch for each in requests])), rows)
        except RequestError as error:
            self._fail(requests, error)
        except BaseException as error:  # code of a model raises anything, and must not end this thread
            self._fail(requests, self._named(error))
        else:
            self.counts.last_samples = sum(rows)
            self.counts.answered += len(rows)
            for request, output in zip(requests, outputs, strict=True):
                if request.answer.set_running_or_notify_cancel():  # else its caller went away
                    request.answer.set_result((version, output))

    def _named(self, error: BaseException) -> ModelCallError:
        """What callers see of an error of the model; without memory, later batches are halved."""
        if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
            self._most_samples = max(1, self._most_samples // 2)
        name = secrets.token_hex(4)
        log.error("model_call_failed", id=name, most_samples=self._most_samples, exc_info=error)
        return ModelCallError(f"the model failed; the log has the reason under id {name}")

    def _fail(self, requests: Sequence[_Request], error: Exception) -> None:
        self.counts.failed += len(requests)
        for request in requests:
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_exception(error)
