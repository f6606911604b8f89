"""An elastic gang of one node: another number of ranks on demand, small programs without torch."""

import json
import textwrap
from dataclasses import replace

import pytest
from tests.contracts.launcher.gangs import HEAD, Stand, poll

from gangline.launch.local.follower import Tail
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Plan, Size
from gangline.storage.objects.blobs import get_blob, put_blob

SAVER = HEAD + textwrap.dedent(
    """
    world = int(os.environ["WORLD_SIZE"])
    print("generation", generation, "rank", rank, "of", world)
    signal.signal(15, lambda *_: sys.exit(143))
    step(0)
    while world != int(os.environ["LAST_WORLD"]): time.sleep(0.02)
    """
)


def elastic_podset(stand: Stand, *, ranks: int, others: tuple[int, ...], **environ: str):
    podset = stand.podset(SAVER, ranks=ranks, env=environ)
    sizes = tuple(
        Size(name=f"ddp-{each}", strategy="ddp" if each > 1 else "none", mesh=Mesh(dp_replicate=each), micro_batch=1)
        for each in others
    )
    plan = replace(Plan.from_json(get_blob(stand.store, podset.plan)), sizes=sizes)
    return replace(podset, plan=put_blob(stand.store, plan.to_json()))


def wish(stand: Stand, ranks: int) -> None:
    path = stand.root / "run-1" / "resize.json"
    path.with_suffix(".new").write_text(json.dumps({"ranks": ranks}))
    path.with_suffix(".new").rename(path)


def runs_with(stand: Stand, ranks: int) -> bool:
    status = stand.launcher.status("run-1")
    return status.state == "running" and status.ranks == ranks


def test_gang_takes_every_size_that_was_asked_for_and_nothing_is_charged(tmp_path):
    stand = Stand(tmp_path)
    try:
        stand.launcher.submit(elastic_podset(stand, ranks=1, others=(2, 3, 4), LAST_WORLD="4"))
        poll(lambda: runs_with(stand, 1))
        for ranks in (2, 3, 1):
            wish(stand, ranks)
            poll(lambda ranks=ranks: runs_with(stand, ranks))
        wish(stand, 4)
        events = list(stand.launcher.follow("run-1"))
    finally:
        stand.close()
    end = events[-1].end
    assert (end.exit_code, end.restarts, end.generation) == (0, 0, 4), end
    assert "generation 4 rank 3 of 4" in (stand.root / "run-1" / "logs" / "3.log").read_text()
    reported = [each for each in Tail(stand.root / "run-1" / "keeper-0.jsonl").events() if each["event"] == "resized"]
    assert [(each["before"], each["after"]) for each in reported] == [(1, 2), (2, 3), (3, 1), (1, 4)]
    assert "2 ranks were requested" in reported[0]["reason"]
    assert {event.data["rank"] for event in events if event.kind == "progress"} == {0, 1, 2, 3}
    assert sum(end.ledger.values()) == pytest.approx(end.allocated_seconds, rel=1e-3)


def test_size_without_a_plan_becomes_the_next_smaller_one(tmp_path):
    stand = Stand(tmp_path)
    try:
        stand.launcher.submit(elastic_podset(stand, ranks=3, others=(2,), LAST_WORLD="2"))
        poll(lambda: runs_with(stand, 3))
        wish(stand, 1)
        end = list(stand.launcher.follow("run-1"))[-1].end
    finally:
        stand.close()
    assert (end.exit_code, end.generation) == (0, 1), end
    assert end.ledger.get("idle", 0.0) > 0, "the third slot is held all the same"
