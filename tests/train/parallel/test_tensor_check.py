"""Rules that would train another model, or none: a gang ends at its start with the reason."""

import pytest
from tests.train.parallel.wording import CODE, words_plan

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh

FUSED = """
class Fused(Attention):
    def __init__(self, width, heads, kv_heads, head_width=4):
        super().__init__(width, heads, heads)
        self.wqkv = nn.Linear(width, 3 * heads * head_width)

    def forward(self, x):
        query, key, value = self.wqkv(x).unflatten(-1, (3, -1, self.head_width)).permute(2, 0, 3, 1, 4)
        return self.wo(scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
"""
FUSED_CHANGES = [
    ("class Block(nn.Module):\n", FUSED),
    ("= Attention(", "= Fused("),
    ('"layers.*.attention.w[q]"', '"layers.*.attention.wqkv": "colwise:heads",\n    "layers.*.attention.w[q]"'),
]


def change(gang, changes):
    source = (gang.code / "model.py").read_text()
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    (gang.code / "model.py").write_text(source)


def refusal(gang, changes, task="Cut"):
    """Log of a gang whose model is changed so."""
    change(gang, changes)
    assert gang.run(words_plan(Mesh(tp=2), task, steps=1)) == [ConfigError.exit_code] * 2
    return gang.log()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([('"layers.*.attention.norm_of_heads": "local",', "")], "the gradient of attention.norm_of_heads.weight"),
        (FUSED_CHANGES, "its output"),
        ([('"layers.*.up": "colwise",', "")], "cannot be computed after it is cut"),
        ([("mixed.transpose(1, 2).flatten(2)", "mixed.transpose(1, 2).reshape(*x.shape[:2], x.shape[2])")],
         "cannot be computed after it is cut"),
    ],
    ids=["norm of heads without a word", "fused rows in another order", "half of a pair", "all heads counted"],
)  # fmt: skip
def test_rules_that_change_what_a_block_computes_end_the_gang_at_its_start(make_gang, changes, reason):
    log = refusal(make_gang(CODE), changes)
    assert "hints.tensor: layers.0" in log
    assert reason in log


def test_block_that_takes_no_made_up_input_is_trained_untried(make_gang):
    gang = make_gang(CODE)
    first_line = "        x = x + self.drop"
    change(
        gang,
        [
            (f"def forward(self, x):\n{first_line}", f"def forward(self, x, more):\n{first_line}"),
            ("x = layer(x)", "x = layer(x, None)"),
        ],
    )
    assert gang.run(words_plan(Mesh(tp=2), steps=1)) == [0, 0], gang.log()
    (event,) = gang.events(event="tensor_rules_untried")
    assert "layers.0 does not take a random input of shape (2, 4, 16)" in event["reason"]


def test_block_with_a_part_of_each_sequence_has_a_word_for_every_weight(make_gang):
    log = refusal(make_gang(CODE), [('"layers.*.norm_*": "sequence", "layers.*.drop"', '"layers.*.drop"')], "CutAll")
    assert "layers.0.norm_attention holds ['weight', 'bias'] and has no word" in log


def test_sequence_that_peers_cannot_share_is_named(make_gang):
    gang = make_gang(CODE)
    plan = words_plan(Mesh(tp=2), "CutSequence", model={"length": 11}, steps=1)
    assert gang.run(plan) == [ConfigError.exit_code] * 2
    assert "train.mesh.tp = 2: a sequence of 11 does not divide into 2" in gang.log()
