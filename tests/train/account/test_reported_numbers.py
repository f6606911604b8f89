"""Numbers of programs as floats: every library's own kind of number, and what is refused by its argument's name."""

import json
import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from gangline.errors import UsageError
from gangline.train.account.event_log import to_json
from gangline.train.account.reports import as_number, as_numbers


class Scalar:
    """A number of a library that has no other sign of it."""

    def __float__(self):
        return 2.5


NUMBERS = [
    2.5, np.float32(2.5), np.float64(2.5), np.array(2.5), np.array([2.5]), Decimal("2.5"), Fraction(5, 2), Scalar(),
    torch.tensor(2.5), torch.tensor([[2.5]], dtype=torch.bfloat16), torch.ones(1, requires_grad=True) * 2.5,
]  # fmt: skip


@pytest.mark.parametrize("value", NUMBERS, ids=lambda each: type(each).__name__)
def test_whatever_converts_to_one_number_is_that_number(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = as_number("program.step: loss", value)
    assert json.loads(to_json({"loss": found})) == {"loss": 2.5}
    assert type(found) is float


@pytest.mark.parametrize("value", [3, True, np.int64(3), np.bool_(True), torch.tensor(3)])
def test_whole_numbers_and_truths_are_numbers(value):
    assert as_number("n", value) == float(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float32("nan"), torch.tensor(-math.inf), Decimal("NaN")])
def test_numbers_that_are_not_finite_stay_so(value):
    assert not math.isfinite(as_number("program.report: bound", value))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (torch.ones(2), "Tensor of shape (2,)"), (np.ones((2, 3)), "ndarray of shape (2, 3)"),
        (torch.ones(1, device="meta"), "Tensor of shape (1,)"), ("0.5", "str"), (np.str_("0.5"), "str_"),
        (None, "NoneType"), ([0.5], "list"), (1j, "complex"), (10**400, "int"), (Decimal("sNaN"), "Decimal"),
    ],
)  # fmt: skip
def test_what_is_not_one_number_is_refused_by_its_name_and_kind(value, found):
    with pytest.raises(UsageError) as raised:
        as_numbers("program.report", {"good": 1.0, "eval_loss": value})
    assert str(raised.value).startswith(f"program.report: eval_loss: wanted one number, found {found}; ")


@pytest.mark.parametrize("name", ["time", "rank", "seed", "step_seconds"])
def test_a_number_of_a_step_does_not_replace_what_is_measured(name):
    assert as_numbers("program.report", {name: 1}) == {name: 1.0}
    with pytest.raises(UsageError, match=f"found {name}, which a step has already; name it otherwise: my_{name}="):
        as_numbers("program.step", {name: 1, "learning_rate": 0.1}, of_a_step=True)
