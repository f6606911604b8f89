"""Words, patterns and numbers of tensor parallelism: mistakes are named with what works."""

import pytest
from tests.train.parallel.wording import TASKS
from torch import nn

from gangline.errors import ConfigError
from gangline.train.parallel.tensor_rules import WORDS, common_degree, require_degree, rule_of
from gangline.train.task import ParallelHints


def hints(**tensor):
    return ParallelHints(tensor={name.replace("__", "."): word for name, word in tensor.items()})


def words(**options):
    return TASKS.Words(**{"width": 32, "heads": 4, "kv_heads": 4} | options)


def test_first_pattern_that_matches_says_the_word():
    given = ParallelHints(tensor={"layers.0.up": "rowwise", "layers.*.up": "colwise:heads"})
    assert rule_of("layers.0.up", given).word == "rowwise"
    assert (rule_of("layers.1.up", given).word, rule_of("layers.1.up", given).pieces) == ("colwise", "heads")
    assert rule_of("layers.1.down", given) is None


@pytest.mark.parametrize(
    ("options", "degree"),
    [({}, 4), ({"kv_heads": 2}, 2), ({"heads": 6, "kv_heads": 3}, 1), ({"heads": 8, "kv_heads": 8}, 8)],
)
def test_degrees_divide_heads_widths_and_vocabulary(options, degree):
    assert common_degree(words(**options), TASKS.CutAll.hints) == degree


def test_model_without_rules_cannot_be_cut_at_all():
    assert common_degree(words(), ParallelHints()) == 0
    with pytest.raises(ConfigError, match=r"train\.mesh\.tp = 2: wanted rules in hints\.tensor .*, found none"):
        require_degree(words(), ParallelHints(), 2)


@pytest.mark.parametrize(
    ("options", "degree", "message"),
    [
        ({"heads": 6, "kv_heads": 6}, 4, r"attention\.wq \(colwise\) has 6 heads, .* into 4; 1, 2 work$"),
        ({"kv_heads": 2}, 4, r"layers\.0\.attention\.wk \(colwise\) has 2 kv_heads"),
        ({}, 16, r"layers\.0\.attention\.wq \(colwise\) has 4 heads"),
    ],
)
def test_heads_that_do_not_divide_are_named_with_degrees_that_work(options, degree, message):
    with pytest.raises(ConfigError, match=message):
        require_degree(words(**options), TASKS.Cut.hints, degree)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (hints(head="colwise_gather"), r"tp = 5: head \(colwise_gather\) has 24 output features"),
        (hints(head="rowwise"), r"head \(rowwise\) has 32 input features"),
        (hints(token="embed"), r"token \(embed\) has 24 words"),
        (hints(token="colwise_gather"), r"token \(colwise_gather\) has 32 features"),
    ],
)
def test_dimension_that_does_not_divide_is_named(given, message):
    with pytest.raises(ConfigError, match=message):
        require_degree(words(), given, 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (hints(head="columns"), r"'head': wanted one of \['colwise', .*\], found 'columns'"),
        (hints(layers__9__up="colwise"), r"'layers\.9\.up' matches no module; on that level there are \['layers\.0\."),
        (hints(norm="colwise"), r"colwise is for Linear or Embedding, norm is a LayerNorm"),
        (hints(token="rowwise"), r"rowwise is for Linear, token is a Embedding"),
        (
            hints(head="colwise:heads"),
            r"colwise:heads of head wants a whole number as 'heads' of the model, found None",
        ),
    ],
)
def test_mistake_in_the_rules_is_named(given, message):
    with pytest.raises(ConfigError, match=message):
        common_degree(words(), given)


@pytest.mark.parametrize("given", [hints(head="colwise_loss"), hints(head="colwise_loss", token="colwise_gather")])
def test_modules_that_share_a_weight_are_cut_alike(given):
    with pytest.raises(ConfigError, match=r'token and head share a weight .* use "embed" .* and "colwise_loss"'):
        common_degree(words(tied=True), given)
    assert common_degree(words(tied=True), TASKS.CutLoss.hints) == 4


def test_any_module_can_work_place_by_place():
    assert WORDS["sequence"] == WORDS["local"] == (nn.Module,)
