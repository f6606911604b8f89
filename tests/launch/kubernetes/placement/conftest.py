"""What tests of the placer share."""

import pytest
from tests.launch.kubernetes.cluster_stand import Stand, watch_over


@pytest.fixture
def stand():
    """Four servers of one CPU; each move is watched for promises given twice."""
    made = Stand({"a": 1, "b": 1, "c": 1, "d": 1})
    watch_over(made)
    return made
