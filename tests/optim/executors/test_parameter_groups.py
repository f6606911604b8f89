"""Groups that are written by hand: what they get wrong is refused, not passed over."""

import pytest
import torch

from gangline.errors import ConfigError
from gangline.optim.executors.parameter_groups import require_groups
from gangline.optim.plan.matrix import FragmentSplit


def matrix():
    return torch.nn.Parameter(torch.zeros(4, 2))


@pytest.mark.parametrize("kind", ["matrix", "elementwise"])
def test_a_split_of_no_matrix_is_refused(kind):
    splits = {"aa" if kind == "matrix" else "a": FragmentSplit(kind="gate_up")}
    other = {"params": [matrix()], "names": ["b"], "kind": "matrix"}
    with pytest.raises(
        ConfigError, match=r"splits name aa?, and the group has no matrix of that name; it has (a|none)$"
    ):
        require_groups([{"params": [matrix()], "names": ["a"], "kind": kind, "splits": splits}, other])


@pytest.mark.parametrize("kind", ["matrix", "elementwise"])
def test_a_parameter_under_two_names_is_refused(kind):
    one = matrix()
    groups = [{"params": [one], "names": ["a"], "kind": "matrix"}, {"params": [one], "names": ["b"], "kind": kind}]
    both = [{"params": [one, one], "names": ["a", "b"], "kind": "matrix"}]
    for each in (groups, both):
        with pytest.raises(ConfigError, match="one parameter under two names: a and b;"):
            require_groups(each)
