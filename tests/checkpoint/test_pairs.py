"""What one layout saved every other opens bit for bit, optimizer and its numbers included."""

import pytest
from tests.checkpoint.layouts import ALL, Layout, build
from tests.checkpoint.pairs import Saved, assert_opens


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return Saved(tmp_path_factory.mktemp("pairs"), build)


PAIRS = [
    (Layout("pp", 4), Layout("fsdp_tp", 4)), (Layout("fsdp_tp", 4), Layout("zero1", 2)),
    (Layout("zero1", 2), Layout("pp", 2)), (Layout("tp", 2), Layout("one", 1)),
    (Layout("one", 1), Layout("pp_fsdp", 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("writer", "reader"),
    [pytest.param(*pair, marks=[pytest.mark.long] if max(each.size for each in pair) > 2 else []) for pair in PAIRS],
    ids=str,
)
def test_checkpoint_opens_bit_equal_under_another_layout(saved, writer, reader):
    assert_opens(saved, reader, [writer])


@pytest.mark.slow
@pytest.mark.parametrize("reader", ALL, ids=str)
def test_checkpoint_of_every_layout_opens_bit_equal_under_every_other(saved, reader):
    assert_opens(saved, reader, ALL)
