"""Objects of a parameter server in the store: names, layout of the weights, pushes, heads. Pure, without torch.

The weights of a model are one row of numbers: all parameters by name, then all buffers. Shards are pieces of that row.
Every document is signed with the key of the run's checkpoints and names its run.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import Protocol, TypeVar

from gangline.checkpoint.format.manifest import sign_payload, verify_payload
from gangline.errors import IntegrityError, StorageError
from gangline.spec.codec import canonical, from_json
from gangline.spec.gang.rank_events import LARGEST
from gangline.spec.parameter_server import MOST_WORKERS
from gangline.spec.plan import Plan
from gangline.storage.objects.protocol import Etag, ObjectStore, get_bounded

MOST_DOCUMENT_BYTES = 16 * 2**20
X = TypeVar("X")


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorPlace:
    """One tensor of the row."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Numbers of the tensor."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class RowShard:
    """A piece of the row, from `start` up to but not including `stop`."""

    number: int
    start: int
    stop: int
    is_mean: bool = False
    """The piece has buffers: workers push their values, and servers keep the mean."""

    @property
    def size(self) -> int:
        """Numbers of the piece."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """Tensors of the model in their order, and the size of a shard; equal for all workers."""

    run: str
    parameters: tuple[TensorPlace, ...]
    buffers: tuple[TensorPlace, ...]
    shard_numbers: int
    """Numbers of a shard; the last one may have fewer."""

    @property
    def size(self) -> int:
        """Numbers of the whole row."""
        return sum(place.size for place in (*self.parameters, *self.buffers))

    def shards(self) -> tuple[RowShard, ...]:
        """All pieces of the row, in order; none has both parameters and buffers."""
        middle, size = sum(parameter.size for parameter in self.parameters), self.shard_numbers
        cuts = [
            (start, min(start + size, stop), is_mean)
            for first, stop, is_mean in ((0, middle, False), (middle, self.size, True))
            for start in range(first, stop, size)
        ]
        return tuple(RowShard(number, *cut) for number, cut in enumerate(cuts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A worker's word that it trains a block."""

    run: str
    worker: int
    life: str
    """Attempt of its gang and generation; another life of the worker may take the block at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockPush:
    """What a worker sends for one block; it is written after the changes that it names."""

    run: str
    block: int
    attempt: int
    worker: int
    versions: tuple[int, ...]
    """Versions of the shards at the begin of the block."""
    samples: int
    loss: float | None
    """Mean loss of the block's steps; None: none of them was finite."""
    tokens: int
    seconds: float
    """Time that the worker took for the block."""
    silent_seconds: float
    """Time without an answer of the store, since the last push."""
    wire_bytes: tuple[int, int]
    """Bytes that the worker sent and received since the last push."""
    digests: tuple[str, ...]
    """SHA-256 of the change of each shard."""

    def require_figures(self) -> None:
        """Raise IntegrityError unless a worker can have what it states of itself; model code may have written it."""
        figures = (self.tokens, *self.wire_bytes, self.seconds, self.silent_seconds)
        if not (1 <= self.worker <= MOST_WORKERS and all(0 <= figure <= LARGEST for figure in figures)):
            raise IntegrityError(
                f"wanted a push of a worker up to {MOST_WORKERS} with counts and times that it can have, found others"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockSet:
    """Blocks that are merged or dropped: all below a mark, and some above it."""

    mark: int = 0
    above: tuple[int, ...] = ()

    def __contains__(self, block: int) -> bool:
        return block < self.mark or block in self.above

    @property
    def count(self) -> int:
        """Number of blocks in the set."""
        return self.mark + len(self.above)

    def with_blocks(self, blocks: Iterable[int]) -> "BlockSet":
        """The set with `blocks` added."""
        above, mark = {*self.above, *(block for block in blocks if block >= self.mark)}, self.mark
        while mark in above:
            above.remove(mark)
            mark += 1
        return BlockSet(mark=mark, above=tuple(sorted(above)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """Newest version of a shard; it changes by compare-and-set alone."""

    run: str
    shard: int
    version: int
    file: str
    """Name of the files of this version; another writer's differ."""
    weights_sha256: str
    state_sha256: str
    done: BlockSet
    dropped: int = 0
    """Blocks that were too old to be merged."""
    refused: int = 0
    """Blocks whose change was damaged, of another layout or not finite."""
    age_sum: int = 0
    """Merges between the pull and the merge of all merged pushes, added up."""
    older: "Head | None" = None
    """The head of the version before, whose files stay for workers that read them, and for use if those of this
    version are damaged; None: there is none."""

    def require_figures(self) -> None:
        """Raise IntegrityError unless a server can have what it states."""
        if not all(0 <= each <= LARGEST for each in (self.version, self.dropped, self.refused, self.age_sum)):
            raise IntegrityError(f"wanted the head of shard {self.shard} with counts that it can have, found others")

    @property
    def merged(self) -> int:
        """Blocks that are in the weights."""
        return self.done.count - self.dropped - self.refused


def newest_sound(head: Head, read: Callable[[Head], X]) -> tuple[Head, X, str]:
    """A head and what `read` gives of it, or those of the version before, and why the newest cannot be read.

    Raises:
        IntegrityError: Both are damaged, or there is none before.
    """
    try:
        return head, read(head), ""
    except IntegrityError as error:
        if head.older is None:
            raise
        try:
            return head.older, read(head.older), str(error)
        except IntegrityError as second:
            raise IntegrityError(f"{error}; nor can the version before be read: {second}") from error


class OfRun(Protocol):
    """A document that names its run."""

    @property
    def run(self) -> str: ...


T = TypeVar("T", bound=OfRun)


def seal(document: OfRun, key: bytes) -> bytes:
    """Bytes of a signed document."""
    return sign_payload(canonical(document), key)


@dataclass(frozen=True, slots=True)
class ParameterKeys:
    """Keys of the store below the folder of one run's parameter server."""

    prefix: str

    @staticmethod
    def of(plan: Plan) -> "ParameterKeys":
        """Keys of the run of `plan`."""
        return ParameterKeys(f"{plan.run_prefix}/parameters")

    @property
    def layout(self) -> str:
        """The layout, which is written once, after version 0 of all shards."""
        return f"{self.prefix}/layout.json"

    @property
    def final(self) -> str:
        """What the worker that saved the checkpoint measured."""
        return f"{self.prefix}/final.json"

    @property
    def claims(self) -> str:
        """Prefix of claims."""
        return f"{self.prefix}/claims/"

    @property
    def pushes(self) -> str:
        """Prefix of pushes."""
        return f"{self.prefix}/pushes/"

    def claim(self, block: int, attempt: int) -> str:
        """A claim; attempts count from 1."""
        return f"{self.claims}{block:08d}.{attempt:04d}.json"

    def push(self, block: int) -> str:
        """The one push of a block."""
        return f"{self.pushes}{block:08d}.json"

    def change(self, push: BlockPush, shard: int) -> str:
        """Change of a shard that belongs to `push`."""
        return f"{self.prefix}/changes/{push.block:08d}.{push.attempt:04d}/{shard:05d}.safetensors"

    def head(self, shard: int) -> str:
        """Head of a shard."""
        return f"{self.prefix}/shards/{shard:05d}/head.json"

    def files(self, shard: int) -> str:
        """Prefix of the files of a shard's versions."""
        return f"{self.prefix}/shards/{shard:05d}/versions/"

    def weights(self, shard: int, file: str) -> str:
        """Weights of one version, as workers read them."""
        return f"{self.files(shard)}{file}.weights.safetensors"

    def state(self, shard: int, file: str) -> str:
        """What a server needs with the weights to continue from a version."""
        return f"{self.files(shard)}{file}.state.safetensors"

    def clock(self, worker: int) -> str:
        """An object that a worker writes to read the clock of the store."""
        return f"{self.prefix}/clocks/{worker}"


@dataclass(frozen=True, slots=True)
class ParameterStore:
    """The store of one run's parameter server, and the key that signs its documents."""

    store: ObjectStore
    keys: ParameterKeys
    run: str
    key: bytes

    def read(self, kind: type[T], key: str) -> tuple[T, Etag] | None:
        """A document and its version; None: there is none.

        Raises:
            IntegrityError: It is too large, was changed, has another form, another key signed it, or it is of another
                run.
        """
        blob = get_bounded(self.store, key, most_bytes=MOST_DOCUMENT_BYTES)
        if blob is None:
            return None
        found = from_json(kind, verify_payload(blob.data, self.key))
        if found.run != self.run:
            raise IntegrityError(f"wanted a {kind.__name__} of {self.run}, found one of {found.run[:60]!r}")
        return found, blob.etag

    def put_if_absent(self, key: str, document: OfRun) -> Etag | None:
        """Write a document unless there is one; None: there is another one, whatever became of this write."""
        data, etag = seal(document, self.key), None
        try:
            etag = self.store.put_if_absent(key, data)
        except StorageError:  # the answer may have been lost
            if self.store.head(key) is None:
                raise
        return etag or self._own(key, data)

    def compare_and_set(self, key: str, document: OfRun, expected: Etag) -> Etag | None:
        """Write a document if the object is still version `expected`; None: it is another one."""
        data = seal(document, self.key)
        return self.store.compare_and_set(key, data, expected) or self._own(key, data)

    def _own(self, key: str, data: bytes) -> Etag | None:
        """Version of an object that holds `data`: it was written, and the answer was lost on the way."""
        blob = self.store.get(key, 0, len(data) + 1)
        return blob.etag if blob is not None and blob.data == data else None


@dataclass(frozen=True, slots=True)
class RunBlocks:
    """The work of a run in blocks of steps: block `n` has the steps and samples that follow those of block `n - 1`."""

    steps: int
    """Steps of all workers together."""
    block_steps: int
    step_samples: int

    @staticmethod
    def of(plan: Plan) -> "RunBlocks":
        """Blocks of the run whose servers, or one worker, obey `plan`."""
        workers = 1 if plan.worker else plan.num_workers  # a worker's own plan has the steps of all, in its batches
        return RunBlocks(plan.last_step * workers, plan.outer_interval, plan.global_batch // workers)

    @property
    def count(self) -> int:
        """Number of blocks; the last one may be short."""
        return ceil(self.steps / self.block_steps)

    def first_step(self, block: int) -> int:
        """Steps before a block."""
        return block * self.block_steps

    def samples(self, block: int) -> int:
        """Samples of a block."""
        return (min(self.first_step(block + 1), self.steps) - self.first_step(block)) * self.step_samples

    def samples_in(self, done: BlockSet) -> int:
        """Samples of a set of blocks."""
        last = self.count - 1
        missing = self.block_steps * self.step_samples - self.samples(last) if last in done else 0
        return done.count * self.block_steps * self.step_samples - missing
