"""Order of the samples of data sets: a function of seed and position alone, whatever the ranks. Pure.

A position belongs to a stream (`parts`), its place there to a data set (`[[data.mix]]`), and its place among those of
the set to an epoch of the shards of that stream. The shards of an epoch are permuted, then the rows of each group of
`window` of them; `full` is a group of all shards. Permutations are keyed bijections: they take no memory, and any
position costs as much as the first. Integers and SHA-512 alone decide, so every version of Python has the same order.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha512
from itertools import accumulate

from gangline.errors import ConfigError
from gangline.spec.data_source import Order

BLOCK = 1000
"""Samples over which a mix has exactly its shares."""
_ROUNDS = 8
_MASK = (1 << 64) - 1


class Permutation:
    """A bijection of 0 to `count` - 1 that `key` chooses: a Feistel network over the next power of two.

    It is repeated until it falls below `count`: less than twice on average.
    """

    def __init__(self, count: int, key: str) -> None:
        bits = max((count - 1).bit_length(), 2)
        self._count = count
        self._shift = bits // 2
        self._low, self._high = (1 << self._shift) - 1, (1 << bits - self._shift) - 1
        digest = sha512(key.encode()).digest()
        keys = [int.from_bytes(digest[8 * each : 8 * each + 8], "big") for each in range(_ROUNDS)]
        self._keys = tuple(zip(keys[::2], keys[1::2], strict=True))

    def __call__(self, number: int) -> int:
        """Where `number` goes."""
        shift, low_mask, high_mask = self._shift, self._low, self._high
        while True:
            low, high = number & low_mask, number >> shift
            for first, second in self._keys:
                low ^= _scramble(high ^ first) & low_mask
                high ^= _scramble(low ^ second) & high_mask
            number = high << shift | low
            if number < self._count:
                return number


def _scramble(value: int) -> int:
    """A hash of 64 bits, the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


@dataclass(frozen=True, kw_only=True, slots=True)
class SetRows:
    """A data set as the order sees it."""

    name: str
    rows: tuple[int, ...]
    """Rows of each of its shards."""
    weight: float = 1.0
    """Share of the samples, relative to the other sets."""


Place = tuple[int, int, int]
"""Number of the data set, of its shard, of the row in it."""


class DatasetOrder:
    """Order of one training."""

    def __init__(
        self, sets: Sequence[SetRows], *, seed: int, order: Order = "window", window: int = 8, parts: int = 1,
        global_batch: int = 1,
    ) -> None:  # fmt: skip
        """`global_batch`: Samples of a step; a step takes as many from each of the `parts`.

        Raises:
            ConfigError: A part would have no shard, or no whole number of samples; or a weight is below a thousandth.
        """
        if global_batch % parts:
            raise ConfigError(
                f"data.parts = {parts}: wanted a divisor of train.global_batch, found {global_batch}; 1 always works"
            )
        for each in sets:
            if len(each.rows) < parts:
                raise ConfigError(
                    f"data.parts = {parts}: wanted as many shards in each data set, found {len(each.rows)} to train on "
                    f"in {each.name}; use data.parts = {max(len(each.rows), 1)}, or pack smaller shards"
                )
        self._starts = [0, *accumulate(sum(each.rows) for each in sets)]
        self._firsts = [[0, *accumulate(each.rows)] for each in sets]
        self._step, self._share = global_batch, global_batch // parts
        self._mix = _Mix([each.weight for each in sets], f"{seed}\0mix")
        self._streams = [
            [
                _Stream(each, shards, key=f"{seed}\0{each.name}\0{number}", order=order, window=window)
                for number, shards in enumerate(_deal(len(each.rows), parts, f"{seed}\0{each.name}\0parts"))
            ]
            for each in sets
        ]

    def place(self, position: int) -> Place:
        """The sample at `position`."""
        step, offset = divmod(position, self._step)
        part, inside = divmod(offset, self._share)
        number, turn = self._mix.of(step * self._share + inside)
        return (number, *self._streams[number][part].place(turn))

    def sample(self, position: int) -> int:
        """Number of the sample at `position` among all rows, set by set and shard by shard."""
        number, shard, row = self.place(position)
        return self._starts[number] + self._firsts[number][shard] + row

    def windows(self, position: int, places: Iterable[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Set and shard of all that the step at `position` may read at `places` of it, and of what comes after that."""
        now, after = list[tuple[int, int]](), list[tuple[int, int]]()
        turn = position // self._step * self._share
        for part in sorted({place // self._share for place in places}):
            for number, streams in enumerate(self._streams):
                first = self._mix.count(number, turn)
                last = max(self._mix.count(number, turn + self._share) - 1, first)
                reads = streams[part].shards(first, last)
                now += [(number, shard) for shard in reads[0]]
                after += [(number, shard) for shard in reads[1]]
        return now, [each for each in after if each not in now]


def _deal(count: int, parts: int, key: str) -> list[list[int]]:
    """Shards of each part, the same in every epoch, so that a node keeps those of its parts."""
    deck = Permutation(count, key)
    dealt = sorted((deck(shard) % parts, shard) for shard in range(count)) if parts > 1 else []
    return [[shard for own, shard in dealt if own == part] for part in range(parts)] if dealt else [list(range(count))]


class _Mix:
    """Which data set the places of a stream belong to: in each block of 1,000 as many as its weight says."""

    def __init__(self, weights: Sequence[float], key: str) -> None:
        exact = [BLOCK * weight / sum(weights) for weight in weights]
        counts = [int(each) for each in exact]
        for number in sorted(range(len(exact)), key=lambda each: counts[each] - exact[each])[: BLOCK - sum(counts)]:
            counts[number] += 1
        if not all(counts):
            raise ConfigError(
                f"data.mix: wanted weights of a thousandth of their sum or more, found {min(weights)} of {sum(weights)}"
            )
        owners, shuffle = [number for number, count in enumerate(counts) for _ in range(count)], Permutation(BLOCK, key)
        self._owners = [owners[shuffle(place)] for place in range(BLOCK)]
        self._counts = counts
        self._before = [[0, *accumulate(owner == each for owner in self._owners)] for each in range(len(counts))]

    def of(self, turn: int) -> tuple[int, int]:
        """Number of the set, and how many samples of it come before this one."""
        owner = self._owners[turn % BLOCK]
        return owner, self.count(owner, turn)

    def count(self, number: int, turn: int) -> int:
        """Samples of set `number` before place `turn`."""
        block, place = divmod(turn, BLOCK)
        return block * self._counts[number] + self._before[number][place]


class _Stream:
    """Order of those shards of a data set that belong to one part."""

    def __init__(self, rows: SetRows, shards: Sequence[int], *, key: str, order: Order, window: int) -> None:
        self._rows, self._shards, self._key = rows.rows, shards, key
        self._size = sum(rows.rows[each] for each in shards)
        self._shuffles = order != "file"
        self._window = len(shards) if order == "full" else window
        self._epoch, self._group = -1, -1
        self._order: list[int] = []
        """Shards of the current epoch."""
        self._firsts: list[int] = []
        """Place of the first row of each, and of the end."""
        self._permutation = Permutation(1, "")

    def place(self, turn: int) -> tuple[int, int]:
        """Shard and row of the `turn`-th sample."""
        epoch, offset = divmod(turn, self._size)
        self._open(epoch)
        place = bisect_right(self._firsts, offset) - 1
        if self._shuffles:
            first, stop = self._open_group(place // self._window)
            offset = first + self._permutation(offset - first) if stop - first > 1 else offset
            place = bisect_right(self._firsts, offset) - 1
        return self._order[place], offset - self._firsts[place]

    def shards(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Shards of the groups of samples `first` to `last`, at most one epoch, and those of the group after them."""
        now: list[int] = []
        turn, stop = first, min(last, first + self._size)
        while turn <= stop:
            members, turn = self._members(turn)
            now += members
        return now, self._members(turn)[0]

    def _members(self, turn: int) -> tuple[list[int], int]:
        """Shards of the group of sample `turn`, and the first sample after that group."""
        epoch, offset = divmod(turn, self._size)
        self._open(epoch)
        begin = (bisect_right(self._firsts, offset) - 1) // self._window * self._window
        members = self._order[begin : begin + self._window]
        return members, epoch * self._size + self._firsts[begin + len(members)]

    def _open(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        self._epoch, self._group = epoch, -1
        self._order = list(self._shards)
        if self._shuffles:
            shuffle = Permutation(len(self._shards), f"{self._key}\0{epoch}")
            self._order = [self._shards[shuffle(each)] for each in range(len(self._shards))]
        self._firsts = [0, *accumulate(self._rows[each] for each in self._order)]

    def _open_group(self, group: int) -> tuple[int, int]:
        """Places of the rows of the group: from the first up to but not including the last."""
        begin = group * self._window
        first, stop = self._firsts[begin], self._firsts[min(begin + self._window, len(self._order))]
        if group != self._group:
            self._group = group
            self._permutation = Permutation(stop - first, f"{self._key}\0{self._epoch}\0{group}")
        return first, stop
