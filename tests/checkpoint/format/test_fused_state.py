"""Rules of fused parameters that do not fit a checkpoint: each is refused with its place, none does something else."""

import pytest

from gangline.checkpoint.format.fused_names import fusions
from gangline.checkpoint.format.fused_state import convert
from gangline.checkpoint.format.index import Chunk, Index, StoredTensor
from gangline.errors import ConfigError
from gangline.spec.plan import FusedParameter

QKV = FusedParameter(match="*.qkv.w", parts=("*.q.w", "*.k.w", "*.v.w"), split="qkv", heads=2, kv_heads=1, head_dim=2)
GATE_UP = FusedParameter(match="*.fc1.w", parts=("*.gate.w", "*.up.w"), split="gate_up")
EXPERTS = FusedParameter(match="*.experts", parts=("*.expert.{}.w",), split="stack")
Q_K_V = {"model/0.q.w": (4, 3), "model/0.k.w": (2, 3), "model/0.v.w": (2, 3)}
CHOSEN = {"param_groups.0.q.w.lr": 0.1, "param_groups.0.k.w.lr": 0.1, "param_groups.0.v.w.lr": 0.2}


def index(shapes, **dtypes):
    return Index(tensors={
        name: StoredTensor(
            dtype=dtypes.get(name.rpartition("/")[2], "F32"), shape=shape,
            chunks=(Chunk(file="f", offsets=(0,) * len(shape), sizes=shape),),
        )
        for name, shape in shapes.items()
    })  # fmt: skip


def converted(rules, shapes, numbers=None, wanted=(), **dtypes):
    stored = index(shapes, **dtypes)
    names = [name.removeprefix("model/") for name in stored.names("model/")]
    return convert(stored, numbers or {}, fusions(rules, names, wanted))


REFUSED = {
    "matches nothing": ([GATE_UP], {"model/0.fc2.w": (4, 3)}, r"'\*\.fc1\.w': neither .* which has 0\.fc2\.w"),
    "a part is missing": ([QKV], {"model/0.q.w": (4, 3), "model/0.k.w": (2, 3)}, r"parts of 0\.qkv\.w, but no 0\.v\.w"),
    "both forms": ([GATE_UP], {"model/0.fc1.w": (4, 3), "model/0.up.w": (2, 3)}, r"has 0\.fc1\.w and parts of it"),
    "two rules": (
        [GATE_UP, FusedParameter(match="*.fc1.w", parts=("*.a", "*.b"), split="gate_up")], {"model/0.fc1.w": (4, 3)},
        r"0\.fc1\.w is claimed by fused '\*\.fc1\.w' and by",
    ),
    "heads": ([QKV], {"model/0.qkv.w": (9, 3)}, r"'\*\.qkv\.w': 0\.qkv\.w: 2 heads and 1 .* are 8 rows, found 9"),
    "odd": ([GATE_UP], {"model/0.fc1.w": (5, 3)}, r"as many rows each, found 5"),
    "no rows": ([GATE_UP], {"model/0.fc1.w": ()}, r"0\.fc1\.w has no rows"),
    "rows of a part": ([QKV], {**Q_K_V, "model/0.q.w": (2, 3), "model/0.v.w": (4, 3)}, r"4 and 2 and 2 rows"),
    "other columns": ([QKV], {**Q_K_V, "model/0.v.w": (2, 4)}, r"else one shape, found 0\.q\.w \(4, 3\)"),
    "unlike experts": ([EXPERTS], {"model/0.expert.0.w": (2, 3), "model/0.expert.1.w": (3, 3)}, r"else one shape"),
    "a hole in the experts": (
        [EXPERTS], {"model/0.expert.0.w": (2, 3), "model/0.expert.2.w": (2, 3)}, r"but no 0\.expert\.1\.w"
    ),
    "state of one part alone": ([QKV], {**Q_K_V, "optim/0.k.w/momentum": (2, 3)}, r"one alone has momentum"),
    "state of the whole": (
        [QKV], {"model/0.qkv.w": (8, 3), "optim/0.qkv.w/factor_right": (3, 3)}, r"0\.qkv\.w/factor_right .* as a whole"
    ),
    "another split": (
        [GATE_UP], {"model/0.fc1.w": (4, 3), "optim/0.fc1.w::q/root": (3, 3)}, r"::q/root is of none of its parts, gate"
    ),
    "name is taken": (
        [EXPERTS], {"model/0.experts": (1, 2, 3), "optim/0.experts/m": (1, 2, 3), "optim/0.expert.0.w/m": (2, 3)},
        r"has optim/0\.expert\.0\.w/m already",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rules", "shapes", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_rule_that_does_not_fit_is_refused_with_its_place(rules, shapes, message):
    with pytest.raises(ConfigError, match=message):
        converted(rules, shapes)


def test_parts_of_other_dtypes_or_numbers_are_not_joined():
    with pytest.raises(ConfigError, match=r"dtypes of model/\* differ"):
        converted([QKV], Q_K_V, **{"0.v.w": "BF16"})
    with pytest.raises(ConfigError, match=r"lr of 0\.v\.w is 0\.2, that of 0\.q\.w is 0\.1"):
        converted([QKV], Q_K_V, CHOSEN)


SENSELESS = {
    "many stars": ({"match": "*" * 5}, r"at most 4 \* in a name work, found 5"),
    "too few parts": ({"parts": ("*.q.w", "*.k.w")}, "names of 3 parts"),
    "one name twice": ({"parts": ("*.q.w", "*.k.w", "*.q.w")}, "each another"),
    "a star less": ({"parts": ("*.q.w", "*.k.w", "v.w")}, r"as many \* as match and no {}, found 'v\.w'"),
    "no number": ({"parts": ("*.expert.w",), "split": "stack"}, r"one {} for the number"),
}


@pytest.mark.parametrize(("changes", "message"), SENSELESS.values(), ids=SENSELESS.keys())
def test_rule_that_says_something_impossible_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        converted([FusedParameter(**{"match": "*.qkv.w", "parts": QKV.parts, "split": "qkv", **changes})], Q_K_V)


def test_what_the_model_has_in_the_form_of_the_checkpoint_is_left_alone():
    """The other attention of the model is split in both forms of it."""
    shapes = {"model/self.qkv.w": (8, 3), **{name.replace("0", "cross"): shape for name, shape in Q_K_V.items()}}
    found = converted([QKV], shapes, wanted=["self.q.w", "self.k.w", "self.v.w", "cross.q.w", "cross.k.w", "cross.v.w"])
    assert sorted(found.tensors) == sorted(f"model/{one}.{part}.w" for one in ("cross", "self") for part in "qkv")
    assert found.changes == ("self.q.w, self.k.w, self.v.w <- self.qkv.w (qkv)",)
