"""Initial weights: equal under every plan, on every device and world size."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gangline.errors import ConfigError

ROOT = ""
"""Name of the unit that holds everything outside the blocks."""


class Initializer:
    """Gives the units of one model their initial weights, the same on every rank."""

    def __init__(self, model: nn.Module, *, seed: int) -> None:
        """`model` is on the meta device, or on any other with weights that are equal on all ranks."""
        self.model = model
        self._seed = seed

    @staticmethod
    def build(make: Callable[[], nn.Module], *, seed: int) -> "Initializer":
        """`make` is called on the meta device, and again on the CPU if the model must be built whole."""
        on_meta = _build_on_meta(make)
        return Initializer(on_meta if on_meta is not None else _build_whole(make, seed), seed=seed)

    def unit(self, module: nn.Module, name: str, device: torch.device) -> None:
        """Move `module` to `device`; parts on the meta device get weights from (seed, `name`).

        Raises:
            ConfigError: A module on the meta device has no `reset_parameters`, or one that leaves tensors unset.
        """
        pending = [each for each in module.modules() if _is_meta(each)]
        with _seeded(self._seed, name):
            for each in pending:
                each.to_empty(device="cpu", recurse=False)
            with _count_writes() as made:
                for each in reversed(pending):  # inner modules first, as constructors do
                    _reset(each)
        for each in pending:
            _require_values(each, made)
        for each in module.modules():
            _move(each, device)


def derived_seed(seed: int, *parts: object) -> int:
    """A seed of 63 bits for one purpose; different parts give unrelated streams."""
    text = "\0".join(map(str, (seed, *parts)))
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def _build_whole(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with _seeded(seed, ROOT):
        return make()


def _build_on_meta(make: Callable[[], nn.Module]) -> nn.Module | None:
    """The model on the meta device; None: `reset_parameters` of its modules would not repeat its constructor."""
    try:
        with torch.device("meta"), _count_writes() as built, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter")  # it is built again, whole
            model = make()
    except RuntimeError:  # it needs values while it is built; its own errors are raised by the second build
        return None
    modules = [each for each in model.modules() if _owns_tensors(each)]
    tied = sum(1 for _ in model.named_parameters(remove_duplicate=False)) != sum(1 for _ in model.parameters())
    if tied or not all(_is_meta(each) and hasattr(each, "reset_parameters") for each in modules):
        return None
    with torch.device("meta"), _count_writes() as again:
        for module in reversed(modules):
            _reset(module)
    return model if again.num_writes == built.num_writes and again.wrote_all_of(model) else None


def _reset(module: Any) -> None:
    if not hasattr(module, "reset_parameters"):
        raise ConfigError(f"{type(module).__name__} was built on the meta device and has no reset_parameters(); add it")
    with torch.no_grad():
        module.reset_parameters()


def _require_values(module: nn.Module, made: "_CountWrites") -> None:
    own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    if bare := [name for name, tensor in own if not made.wrote(tensor)]:
        raise ConfigError(
            f"{type(module).__name__} was built on the meta device, and its reset_parameters() gives {bare} no values; "
            "let it write them all, or build the model with its values"
        )


def _move(module: Any, device: torch.device) -> None:
    """Move the tensors of `module` itself that are not sharded yet."""
    module._apply(lambda each: each if isinstance(each, DTensor) else each.to(device), recurse=False)  # noqa: SLF001  # .to() would recurse


def _owns_tensors(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False)) or any(True for _ in module.buffers(recurse=False))


def _is_meta(module: nn.Module) -> bool:
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return bool(own) and all(tensor.is_meta for tensor in own)


def _count_writes() -> "_CountWrites":
    make: Any = _CountWrites
    return cast(_CountWrites, make())


class _CountWrites(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its hooks have no types
    """Counts in-place writes, to find those of a constructor that `reset_parameters` does not repeat."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # see above
        self.num_writes = 0
        self._storages: set[int] = set()

    def wrote(self, tensor: torch.Tensor) -> bool:
        return storage_of(tensor) in self._storages or not tensor.numel()

    def wrote_all_of(self, model: nn.Module) -> bool:
        """True: no tensor of `model` has values from its constructor alone, such as a table in a buffer."""
        return all(map(self.wrote, (*model.parameters(), *model.buffers())))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:  # noqa: SLF001  # the only way to ask an operator
            self.num_writes += 1
            self._storages |= {
                storage_of(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
            }
        return func(*args, **(kwargs or {}))


def storage_of(tensor: torch.Tensor) -> int:
    """Identity of the storage of a tensor, also of one on the meta device and of a fake one."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  # these have no address


@contextmanager
def _seeded(seed: int, name: str) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "initialize", name))
        yield
