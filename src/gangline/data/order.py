"""Order of the samples of data sets: a function of seed and position alone, whatever the ranks. Pure.

A position belongs to a stream (`parts`), its place there to a data set (`[[data.mix]]`), and its place among those of
the set to an epoch of the shards of that stream. The shards of an epoch are permuted, then the rows of each group of
`window` of them; `full` is a group of all shards. Permutations are keyed bijections: they take no memory, and any
position costs as much as the first. Integers and SHA-512 alone decide, so every version of Python has the same order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha512
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from gangline.errors import ConfigError
from gangline.spec.data_source import Order

Numbers = NDArray[np.int64]
BLOCK = 1000
"""Samples over which a mix has exactly its shares."""
_BLOCK_ROWS = 1024
"""Rows of a group that are moved at once: one costs nearly as much as all."""


class Permutation:
    """A bijection of 0 to `count` - 1 that `key` chooses: a Feistel network over the next power of two.

    It is repeated until it falls below `count`: less than twice on average.
    """

    def __init__(self, count: int, key: str) -> None:
        bits = max((count - 1).bit_length(), 2)
        self._count = count
        self._shift = np.uint64(bits // 2)
        self._low, self._high = np.uint64((1 << bits // 2) - 1), np.uint64((1 << bits - bits // 2) - 1)
        self._keys = np.frombuffer(sha512(key.encode()).digest(), ">u8").astype(np.uint64).reshape(-1, 2)

    def __call__(self, numbers: Numbers) -> Numbers:
        """Where `numbers` go."""
        moved = numbers.astype(np.uint64)
        places = np.arange(len(moved))
        while len(places):
            low, high = moved[places] & self._low, moved[places] >> self._shift
            for one, two in self._keys:
                low ^= _scramble(high ^ one) & self._low
                high ^= _scramble(low ^ two) & self._high
            moved[places] = high << self._shift | low
            places = places[moved[places] >= self._count]
        return moved.astype(np.int64)


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of 64 bits, the finalizer of SplitMix64 (Steele, Lea and Flood, 2014); products keep their low 64 bits."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetRows:
    """A data set as the order sees it."""

    name: str
    rows: tuple[int, ...]
    """Rows of each of its shards."""
    weight: float = 1.0
    """Share of the samples, relative to the other sets."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where some samples are: for each the number of its data set, of the shard there, and of the row in that."""

    sets: Numbers
    shards: Numbers
    rows: Numbers


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
        self._starts = np.array([0, *accumulate(sum(each.rows) for each in sets)])
        self._firsts = [np.array([0, *accumulate(each.rows)]) for each in sets]
        self._step, self._share = global_batch, global_batch // parts
        self._mix = _Mix([each.weight for each in sets], f"{seed}\0mix")
        self._streams = [
            [
                _Stream(each, shards, key=f"{seed}\0{each.name}\0{number}", order=order, window=window)
                for number, shards in enumerate(_deal(len(each.rows), parts, f"{seed}\0{each.name}\0parts"))
            ]
            for each in sets
        ]

    def places(self, positions: Sequence[int]) -> Places:
        """Where the samples at `positions` are."""
        steps, offsets = np.divmod(np.asarray(positions, dtype=np.int64), self._step)
        parts, inside = np.divmod(offsets, self._share)
        sets, turns = self._mix.of(steps * self._share + inside)
        found = Places(sets, np.empty_like(sets), np.empty_like(sets))
        streams = sets * (self._step // self._share) + parts
        for stream in np.unique(streams):
            own = streams == stream
            number, part = divmod(int(stream), self._step // self._share)
            found.shards[own], found.rows[own] = self._streams[number][part].places(turns[own])
        return found

    def numbers_of(self, places: Places) -> list[int]:
        """Numbers of samples among all rows, set by set and shard by shard."""
        numbers = self._starts[places.sets] + places.rows
        for number in np.unique(places.sets):
            own = places.sets == number
            numbers[own] += self._firsts[number][places.shards[own]]
        return list(numbers.tolist())

    def samples(self, positions: Sequence[int]) -> list[int]:
        """Numbers of the samples at `positions` among all rows."""
        return self.numbers_of(self.places(positions))

    def windows(self, position: int, places: Iterable[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Set and shard of all that the step at `position` may read at `places` of it, and of what comes after that."""
        now, after = list[tuple[int, int]](), list[tuple[int, int]]()
        turn = position // self._step * self._share
        for part in sorted({place // self._share for place in places}):
            for number, streams in enumerate(self._streams):
                first, after_last = self._mix.count(np.array(number), np.array([turn, turn + self._share])).tolist()
                last = max(after_last - 1, first)
                reads = streams[part].shards(first, last)
                now += [(number, shard) for shard in reads[0]]
                after += [(number, shard) for shard in reads[1]]
        return now, [each for each in after if each not in now]


def _deal(count: int, parts: int, key: str) -> list[Numbers]:
    """Shards of each part, the same in every epoch, so that a node keeps those of its parts."""
    shards = np.arange(count)
    owners = Permutation(count, key)(shards) % parts
    return [shards[owners == part] for part in range(parts)]


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
        self._counts = np.array(counts)
        self._owners = np.repeat(np.arange(len(counts)), counts)[Permutation(BLOCK, key)(np.arange(BLOCK))]
        own = self._owners == np.arange(len(counts))[:, None]
        self._before = np.pad(np.cumsum(own, axis=1), ((0, 0), (1, 0)))

    def of(self, turns: Numbers) -> tuple[Numbers, Numbers]:
        """Number of the set of each, and how many samples of that set come before."""
        owners = self._owners[turns % BLOCK]
        return owners, self.count(owners, turns)

    def count(self, number: Numbers, turns: Numbers) -> Numbers:
        """Samples of set `number` before places `turns`."""
        blocks, places = np.divmod(turns, BLOCK)
        array: Numbers = blocks * self._counts[number] + self._before[number, places]
        return array


class _Stream:
    """Order of those shards of a data set that belong to one part."""

    def __init__(self, rows: SetRows, shards: Numbers, *, key: str, order: Order, window: int) -> None:
        self._rows, self._shards, self._key = np.array(rows.rows), shards, key
        self._size = int(self._rows[shards].sum())
        self._shuffles = order != "file"
        self._window = len(shards) if order == "full" else window
        self._epoch, self._block = -1, (-1, -1)
        self._order = self._firsts = self._moves = np.zeros(0, dtype=np.int64)
        """Shards of the current epoch; place of the first row of each, and of the end; where the rows of the current
        block of a group go."""

    def places(self, turns: Numbers) -> tuple[Numbers, Numbers]:
        """Shards and rows of samples."""
        shards, rows = np.empty_like(turns), np.empty_like(turns)
        epochs, offsets = np.divmod(turns, self._size)
        for epoch in np.unique(epochs):
            own = epochs == epoch
            self._open(int(epoch))
            moved = self._moved(offsets[own]) if self._shuffles else offsets[own]
            places = np.searchsorted(self._firsts, moved, side="right") - 1
            shards[own], rows[own] = self._order[places], moved - self._firsts[places]
        return shards, rows

    def _moved(self, offsets: Numbers) -> Numbers:
        """Where rows of the epoch go, each inside its group."""
        groups = (np.searchsorted(self._firsts, offsets, side="right") - 1) // self._window
        begins = self._firsts[groups * self._window]
        blocks = (offsets - begins) // _BLOCK_ROWS
        moved = np.empty_like(offsets)
        for group, block in sorted(set(zip(groups.tolist(), blocks.tolist(), strict=True))):
            own = (groups == group) & (blocks == block)
            begin, first = int(self._firsts[group * self._window]), block * _BLOCK_ROWS
            if (group, block) != self._block:
                count = int(self._firsts[min((group + 1) * self._window, len(self._order))]) - begin
                shuffle = Permutation(count, f"{self._key}\0{self._epoch}\0{group}")
                self._moves = begin + shuffle(np.arange(first, min(first + _BLOCK_ROWS, count)))
                self._block = (group, block)
            moved[own] = self._moves[offsets[own] - begin - first]
        return moved

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
        begin = (int(np.searchsorted(self._firsts, offset, side="right")) - 1) // self._window * self._window
        members = self._order[begin : begin + self._window].tolist()
        return members, epoch * self._size + int(self._firsts[begin + len(members)])

    def _open(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        self._epoch, self._block = epoch, (-1, -1)
        self._order = self._shards
        if self._shuffles:
            count = len(self._shards)
            self._order = self._shards[Permutation(count, f"{self._key}\0{epoch}")(np.arange(count))]
        self._firsts = np.pad(np.cumsum(self._rows[self._order]), (1, 0))
