"""Updates from their owners to all ranks with copies, bucket by bucket in the geometry of the plan."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from gangline.optim.executors.exchange import Pending, UpdateExchange
from gangline.optim.plan.geometry import BucketPlan

Apply = Callable[[int, Tensor], None]
"""Called with the place of a matrix in the plan and what this rank holds of its update, in one dimension."""
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

    def publish(self, owned: Mapping[int, Tensor], apply: Apply) -> None:
        """Apply all updates, this rank's `owned` ones and those of other owners, once each."""
        finish: Callable[[], None] | None = None
        for bucket in self._buckets:
            start = self._gather if bucket.kind == "permuted" else self._broadcast
            following = start(bucket, owned, apply)
            if finish is not None:  # one bucket is applied while the next one travels
                finish()
            finish = following
        if finish is not None:
            finish()

    def _gather(self, bucket: BucketPlan, owned: Mapping[int, Tensor], apply: Apply) -> Callable[[], None]:
        """G2: equal shards of all owners in one collective."""
        of_rank = self._by_owner(bucket)
        size = max(self._length(places) for places in of_rank)
        pending = self._copies.all_gather(self._joined(of_rank[self._copies.place], owned), size)

        def finish() -> None:
            for places, shard in zip(of_rank, torch.split(pending.wait(), size) if size else (), strict=False):
                self._deliver(places, shard, apply)

        return finish

    def _broadcast(self, bucket: BucketPlan, owned: Mapping[int, Tensor], apply: Apply) -> Callable[[], None]:
        """G1: one message of each owner; G3: one of each matrix."""
        if bucket.kind == "contiguous":
            messages = list(enumerate(self._by_owner(bucket)))
        else:
            messages = [(owner, [place]) for place, owner in zip(bucket.places, bucket.owners, strict=True)]
        sent = [(places, self._send(owner, places, owned)) for owner, places in messages if self._length(places)]

        def finish() -> None:
            for places, pending in sent:
                self._deliver(places, pending.wait(), apply)

        return finish

    def _send(self, owner: int, places: _Places, owned: Mapping[int, Tensor]) -> Pending:
        is_mine = owner == self._copies.place
        tensor = self._joined(places, owned) if is_mine else self._like.new_empty(self._length(places))
        return self._copies.broadcast(tensor, owner)

    def _by_owner(self, bucket: BucketPlan) -> list[list[int]]:
        of_rank: list[list[int]] = [[] for _ in range(self._copies.ranks)]
        for place, owner in zip(bucket.places, bucket.owners, strict=True):
            of_rank[owner].append(place)
        return of_rank

    def _length(self, places: _Places) -> int:
        return sum(self._sizes[place] for place in places)

    def _joined(self, places: _Places, owned: Mapping[int, Tensor]) -> Tensor:
        return torch.cat([owned[place] for place in places]) if places else self._like.new_empty(0)

    def _deliver(self, places: _Places, flat: Tensor, apply: Apply) -> None:
        start = 0
        for place in places:
            apply(place, flat[start : start + self._sizes[place]])
            start += self._sizes[place]
