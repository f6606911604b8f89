"""Search for code that divides work among ranks, in a script and in the modules of the repository that it uses."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gangline.init.python_module import Call
from gangline.init.used_modules import UsedModules

_LIBRARIES = {"xgboost": "xgboost", "lightgbm": "sklearn", "keras": "keras", "jax": "jax", "flax": "jax",
              "torch": "torch", "tensorflow": "keras", "sklearn": "sklearn"}  # fmt: skip
"""Kind by a library that is imported; the first of them counts."""
_TRAINERS = {"transformers": "transformers", "trl": "transformers", "sentence_transformers": "transformers",
             "setfit": "transformers", "lightning": "lightning", "pytorch_lightning": "lightning",
             "lightning_fabric": "lightning"}  # fmt: skip
"""Kind by the package of a class called `...Trainer`."""
_OF_LIGHTNING = ("Fabric", "LightningCLI")
_RANKS = frozenset({
    "init_process_group", "init_device_mesh", "init_distributed", "init_distributed_device", "init_distributed_mode",
    "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard",
})  # fmt: skip
"""Calls of torch and of helpers of libraries, by which ranks that torchrun started join."""
_MAY_START = frozenset({
    "colossalai", "composer", "detectron2", "fairseq", "horovod", "ignite", "megatron", "mmcv", "mmengine", "nemo",
    "ray", "torchtitan", "torchtune", "ultralytics",
})  # fmt: skip
"""Libraries that start ranks in ways of their own."""
_HIDDEN = frozenset({"import_module", "__import__", "instantiate", "run_path", "run_module"})
"""Calls that run code which nothing in the text names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSearch:
    """Result of the search."""

    kind: str
    """A kind of `SCRIPT_KINDS`."""
    path: str
    """File that shows it."""
    line: int
    """Line of that file; 0 if no line does."""
    num_modules: int
    """Modules of the repository that were looked at besides the script."""
    not_seen: str
    """What else may divide the work, a phrase; empty: all of it was looked at."""


def search_ranks(used: UsedModules) -> RankSearch:
    """Kind of a script, by its own code first, then by that of the modules that it uses."""
    num_modules, not_seen = len(used.modules) - 1, _not_seen(used)
    bases: dict[str, list[Call]] = {}
    for name, calls in ((name, base) for module in used.modules for name, base in module.bases.items()):
        bases.setdefault(name, []).extend(calls)
    own = {name for module in used.modules for name in module.scopes} | bases.keys()
    for module in used.modules:
        for kind, line in _signs(list(used.calls(module)), bases, own):
            return RankSearch(kind=kind, path=module.path, line=line, num_modules=num_modules, not_seen="")
    imported = [{each.module.partition(".")[0] for each in module.imports} for module in used.modules]
    kinds = (kind for tops in imported for library, kind in _LIBRARIES.items() if library in tops)
    return RankSearch(
        kind=next(kinds, "plain"), path=used.modules[0].path, line=0, num_modules=num_modules, not_seen=not_seen
    )


def _signs(
    calls: list[Call], bases: Mapping[str, Sequence[Call]], own: Collection[str]
) -> Iterator[tuple[str, int]]:  # fmt: skip
    """(kind, line) of each framework that the calls show, the one that decides first.

    `bases` has the classes of the repository, `own` names that it defines.
    """
    tops = [(each, each.module.partition(".")[0]) for each in calls]
    yield from (("gangline", each.line) for each, top in tops if top == "gangline")
    yield from (("accelerate", each.line) for each, _ in tops if each.name == "Accelerator")
    trainers = [(_trainer_kind(each, bases), each.line) for each, _ in tops]
    for wanted in ("transformers", "lightning"):
        yield from ((kind, line) for kind, line in trainers if kind == wanted)
    yield from (("spawns", each.line) for each, top in tops if each.name == "spawn" and top.startswith("torch"))
    yield from (("tf.distribute", each.line) for each, _ in tops if each.name == "MultiWorkerMirroredStrategy")
    for call, top in tops:
        if call.name == "initialize" and call.module.startswith("jax.distributed"):
            yield "jax.distributed", call.line
        elif (call.name in _RANKS and call.name not in own) or (call.name == "initialize" and top == "deepspeed"):
            yield "torchrun", call.line


def _trainer_kind(call: Call, bases: Mapping[str, Sequence[Call]], depth: int = 4) -> str:
    """Kind of the library whose Trainer is called, or is a base of the called class; empty: it is none."""
    top = call.module.partition(".")[0]
    if top in _TRAINERS:
        kind = _TRAINERS[top]
        is_one = call.name.endswith("Trainer") or (kind == "lightning" and call.name in _OF_LIGHTNING)
        return kind if is_one else ""
    above = bases.get(call.name, ()) if depth else ()
    return next(filter(None, (_trainer_kind(base, bases, depth - 1) for base in above)), "")


def _not_seen(used: UsedModules) -> str:
    tops = {each.module.partition(".")[0] for module in used.modules for each in module.imports if not each.level}
    calls = {call.name for module in used.modules for call in used.calls(module)}
    own = {part for module in used.modules for part in module.path.split("/")}
    found = [f"what {name} starts" for name in sorted((tops & _MAY_START) - own)]
    found += [f"what it loads by {name}" for name in sorted(calls & _HIDDEN)]
    found += [] if used.is_whole else ["more modules of the repository"]
    return _listed(found)


def _listed(words: Iterable[str]) -> str:
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last
