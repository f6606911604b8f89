"""Which gang's logs a run has."""

from dataclasses import replace

import pytest
from tests.report import records

from gangline.errors import UsageError
from gangline.line.gangs.logs import gang_of_role
from gangline.spec.record import StageInfo


def test_run_that_took_its_training_names_the_run_that_has_the_logs():
    info = StageInfo(state="taken", taken_from="cheap-1")
    record = replace(records.passed(), gang=None)
    with pytest.raises(UsageError, match="took its training from cheap-1: gangline logs cheap-1"):
        gang_of_role(replace(record, stages=record.stages | {"train": info}), "train")
    with pytest.raises(UsageError, match="has started no gang yet"):
        gang_of_role(record, "train")
