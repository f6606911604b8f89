"""Model code at a member in its sandbox: what its end says to the coordinator."""

import numpy as np
import pytest
from tests.flare.offers import new_plan

from gangline.errors import CapacityError, TrainingError
from gangline.federated.protocol import RoundCall
from gangline.flare.member.local_gang import LocalGang
from gangline.launch.sandbox import find_engine
from gangline.storage.objects.code_layer import LayerFile, pack

pytestmark = pytest.mark.long
ENDS = {
    "killed": (b"import os\nos.kill(os.getpid(), 9)\n", CapacityError, "model code was killed"),
    "raised": (b"raise ValueError('no such column')\n", TrainingError, "no such column"),
    "late": (b"import time\ntime.sleep(600)\n", CapacityError, "no answer within 1 s"),
}


@pytest.mark.row("FL6")
@pytest.mark.parametrize("end", ENDS)
def test_model_code_that_is_killed_or_late_is_lost_and_one_that_raises_is_an_error(tmp_path_factory, end):
    if not find_engine("required", wide=False).hides:
        pytest.skip("bubblewrap is missing")
    code, error, said = ENDS[end]
    data = tmp_path_factory.mktemp("data")
    for each in (data, *data.parents[:2]):
        each.chmod(0o755)
    gang = LocalGang(new_plan(layer_task="ends:Task"), pack([LayerFile("ends.py", code)]), data, name="aachen")
    seconds = 1.0 if end == "late" else 100.0
    call = RoundCall(number=1, attempt=1, trains=True, weights={"w": np.zeros(2, np.float32)}, seconds=seconds)
    try:
        with pytest.raises(error, match=said):
            gang.ask(call, trainings=0, is_stopped=lambda: False)
    finally:
        gang.close()


def test_what_a_member_says_of_an_error_is_one_word():
    pytest.importorskip("nvflare", reason="nvflare is not installed")
    from gangline.flare.executor import _reason_of

    assert [_reason_of(each("x")) for each in (CapacityError, TrainingError)] == ["lost", "error"]
