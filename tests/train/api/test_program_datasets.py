"""Programs on data sets: a Session reads rows in the order of the line, a Program finds files before its first step."""

import json
from dataclasses import replace

from tests.train.gang import make_plan
from tests.train.sets.packed import put_dataset, source_of

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec

SESSION = """
import json, os, torch
from torch import nn
from gangline.train.api.session import Session, parallelize
with Session() as session:
    rows = session.dataset("train")
    model = parallelize(nn.Linear(1, 1), session)
    optimizer = session.optimizer(model, lambda each: torch.optim.SGD(each.parameters(), lr=0.0))
    taken = []
    for batch in session.batches(rows):
        taken += batch["id"].tolist()
        session.backward(model(batch["id"].float()[:, None]).square().mean())
        session.step(optimizer)
    found = {"taken": taken, "files": session.data_files, "holdout": len(session.dataset("holdout"))}
    with open(os.path.join(os.environ["GANGLINE_HOME"], "found.json"), "w") as file:
        json.dump(found, file)
"""
PROGRAM = """
import json, os, sys
from gangline.train.api.program import Program
with Program() as program:
    while program.has_more:
        program.step(loss=1.0)
    with open(os.path.join(os.environ["GANGLINE_HOME"], "found.json"), "w") as file:
        json.dump({"files": program.data_files, "sizes": [os.stat(each).st_size for each in program.data_files]}, file)
"""


def run(make_gang, program, **keys):
    gang = make_gang()
    (gang.code / "train.py").write_text(program)
    dataset = put_dataset(gang.store, shards=3, rows=4)
    plan = make_plan(
        "none", program=ProgramSpec(command=("python", "train.py")), steps=3, global_batch=4, micro_batch=4, model={},
        checkpoint=CheckpointPolicy(every=3), data=replace(source_of(dataset), **keys),
    )  # fmt: skip
    assert gang.run_program(replace(plan, mesh=Mesh())) == [0], gang.log()
    return json.loads((gang.home / "found.json").read_bytes()), dataset


def test_a_session_takes_each_row_of_an_epoch_once_and_gives_files_to_those_who_ask(make_gang):
    found, _ = run(make_gang, SESSION, workers=1)
    assert sorted(found["taken"]) == list(range(12))
    assert found["taken"] != list(range(12))
    assert found["holdout"] == 4
    assert len(found["files"]) == 4


def test_a_program_finds_all_shards_whole(make_gang):
    found, dataset = run(make_gang, PROGRAM)
    ends = ["holdout/000003.arrow", "train/000000.arrow", "train/000001.arrow", "train/000002.arrow"]
    assert [each.split("/numbers/")[1] for each in found["files"]] == ends
    sizes = {f"{each.split}/{each.path}": each.size_bytes for each in dataset.shards}
    assert found["sizes"] == [sizes[each] for each in ends]
