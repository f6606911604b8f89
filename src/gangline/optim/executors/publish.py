"""Updates from their owners to all ranks with copies, bucket by bucket in the geometry of the plan.

Buckets are sent and applied in one order on all ranks; some of them travel while a step goes on.
"""

from collections import deque
from collections.abc import Callable, MutableMapping, Sequence

import torch
from torch import Tensor

from gangline.errors import TrainingError
from gangline.optim.executors.exchange import Pending, UpdateExchange
from gangline.optim.plan.geometry import BucketPlan

Apply = Callable[[int, Tensor], None]
"""Called with the place of a matrix in the plan and what this rank holds of its update, in one dimension."""
Finish = Callable[[], None]
"""Waits for the updates of a bucket and applies them."""
Send = Callable[[], Finish]
"""Starts to send the updates of a bucket; all ranks with copies call in the same order."""
_Places = Sequence[int]


class UpdatePublisher:
    """Sends the updates of all owners; every rank of `copies` makes the same calls."""

    def __init__(
        self, buckets: Sequence[BucketPlan], sizes: Sequence[int], copies: UpdateExchange, like: Tensor
    ) -> None:
        """Args:
        buckets: Of the plan.
        sizes: Elements of each matrix of the plan that this rank holds, equal on all ranks of `copies`.
        copies: Ranks with the same parts.
        like: Any tensor of the device and dtype of updates that travel.
        """
        self._buckets, self._sizes, self._copies, self._like = buckets, sizes, copies, like

    def publish(self, owned: MutableMapping[int, Tensor], apply: Apply) -> list[Send]:
        """What applies all updates, those of this rank and of other owners, once each: a call for each bucket.

        Nothing is sent yet. `owned`, this rank's updates, are copied and taken out: they may share memory with
        gradients, which may be overwritten before they are sent.
        """
        start = {"permuted": self._gather, "contiguous": self._broadcast, "owner": self._broadcast}
        return [start[bucket.kind](bucket, owned, apply) for bucket in self._buckets]

    def _gather(self, bucket: BucketPlan, owned: MutableMapping[int, Tensor], apply: Apply) -> Send:
        """G2: equal shards of all owners in one collective."""
        of_rank = self._by_owner(bucket)
        size = max(self._length(places) for places in of_rank)
        own = self._joined(of_rank[self._copies.place], owned)

        def send() -> Finish:
            pending = self._copies.all_gather(own, size)

            def finish() -> None:
                for places, shard in zip(of_rank, torch.split(pending.wait(), size) if size else (), strict=False):
                    self._deliver(places, shard, apply)

            return finish

        return send

    def _broadcast(self, bucket: BucketPlan, owned: MutableMapping[int, Tensor], apply: Apply) -> Send:
        """G1: one message of each owner; G3: one of each matrix."""
        if bucket.kind == "contiguous":
            messages = list(enumerate(self._by_owner(bucket)))
        else:
            messages = [(owner, [place]) for place, owner in zip(bucket.places, bucket.owners, strict=True)]
        messages = [(owner, places) for owner, places in messages if self._length(places)]
        own = {
            at: self._joined(each, owned) for at, (owner, each) in enumerate(messages) if owner == self._copies.place
        }

        def send() -> Finish:
            sent = [(places, self._send(owner, places, own.get(at))) for at, (owner, places) in enumerate(messages)]

            def finish() -> None:
                for places, pending in sent:
                    self._deliver(places, pending.wait(), apply)

            return finish

        return send

    def _send(self, owner: int, places: _Places, own: Tensor | None) -> Pending:
        return self._copies.broadcast(self._like.new_empty(self._length(places)) if own is None else own, owner)

    def _by_owner(self, bucket: BucketPlan) -> list[list[int]]:
        of_rank: list[list[int]] = [[] for _ in range(self._copies.ranks)]
        for place, owner in zip(bucket.places, bucket.owners, strict=True):
            of_rank[owner].append(place)
        return of_rank

    def _length(self, places: _Places) -> int:
        return sum(self._sizes[place] for place in places)

    def _joined(self, places: _Places, owned: MutableMapping[int, Tensor]) -> Tensor:
        return torch.cat([owned.pop(place) for place in places]) if places else self._like.new_empty(0)

    def _deliver(self, places: _Places, flat: Tensor, apply: Apply) -> None:
        start = 0
        for place in places:
            apply(place, flat[start : start + self._sizes[place]])
            start += self._sizes[place]


class OutstandingUpdates:
    """Handle of a step. One bucket is applied while the next ones travel."""

    def __init__(self, sends: Sequence[Send], *, in_flight: int, done: Callable[[], None]) -> None:
        """Send the first buckets.

        Args:
            sends: Of all buckets, in the order that all ranks with copies have.
            in_flight: Buckets that travel, or have come and are not applied, at once. Where these are all, what a rank
                waits for does not depend on what the others do after the step.
            done: Called once all are applied.
        """
        self._waiting, self._sent, self._in_flight, self._done = deque(sends), deque[Finish](), in_flight, done
        self._applied, self._is_applying = 0, False
        self._send()
        self._end()

    def wait(self) -> None:
        """Apply all that is outstanding.

        Raises:
            TrainingError: An earlier call was interrupted while it applied.
        """
        self.apply(self._applied + len(self._sent) + len(self._waiting))

    def apply(self, buckets: int) -> None:
        """Apply the first `buckets` of the step, as far as they are not.

        Raises:
            TrainingError: As of `wait`.
        """
        if self._is_applying:
            raise TrainingError("a step was interrupted while its updates were applied; resume from a checkpoint")
        if buckets <= self._applied:
            return
        with torch.no_grad():
            self._is_applying = True
            while self._applied < buckets:
                self._sent.popleft()()
                self._applied += 1
                self._send()
            self._is_applying = False
        self._end()

    def _send(self) -> None:
        while self._waiting and len(self._sent) < self._in_flight:
            self._sent.append(self._waiting.popleft()())

    def _end(self) -> None:
        if not self._waiting and not self._sent:
            self._done()
