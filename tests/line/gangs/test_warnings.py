"""What of a gang's events a person hears of."""

import pytest

from gangline.launch.protocol import GangEvent
from gangline.line.gangs.follow import warning_of


@pytest.mark.parametrize(
    ("kind", "text", "data", "said"),
    [
        ("restart", "rank 1 ended by signal 9", {"generation": 2}, "restart 2: rank 1 ended by signal 9"),
        ("progress", "save_failed", {"step": 4, "reason": "no space is left"},
         "the checkpoint of step 4 could not be saved: no space is left"),
        ("progress", "checkpoint_refused", {"file": "step-00000004", "reason": "a digest differs"},
         "checkpoint refused, trying an older one: step-00000004: a digest differs"),
        ("progress", "metrics_not_served", {"rank": 0, "reason": "port 9400 is in use"},
         "training continues without: port 9400 is in use"),
        ("progress", "metrics_not_served", {"rank": 1, "reason": "port 9401 is in use"}, None),
        ("progress", "non_finite", {"step": 4, "answer": "skip"}, "step 4 was not finite, the answer is skip"),
        ("progress", "non_finite", {"step": 4, "answer": "stop"}, None),
        ("progress", "straggler",
         {"slow": 3, "node": 1, "ratio": 1.3167, "seconds": 0.0141, "phase": "data", "step": 71, "rank": 0},
         ("rank 3 on node 1 is slow since step 71: 1.32 times as long as the others, 14.1 ms a step, "
          "most of it in data")),
        ("progress", "straggler_over", {"slow": 3, "step": 140}, "rank 3 is as fast as the others again, at step 140"),
        ("progress", "stragglers_not_judged", {"reason": "waits are not measured"}, "waits are not measured"),
        ("progress", "straggler_answered", {"step": 80, "reason": "replicas take 10 and 6 samples"},
         "step 80: replicas take 10 and 6 samples"),
        ("note", "whether tiles share a group is not known", {"event": "tiles_not_known"},
         "whether tiles share a group is not known"),
        ("note", "evicted by Kueue, eviction 1: Preempted", {"event": "evicted"},
         "evicted by Kueue, eviction 1: Preempted"),
        ("note", "from 2 to 3 ranks: 3 ranks were asked for", {"event": "resized", "generation": 4},
         "generation 4: from 2 to 3 ranks: 3 ranks were asked for"),
        ("progress", "worker_silent", {"worker": 2, "seconds": 75.0},
         "worker 2 has pushed nothing for 1 min 15 s; the others train on"),
        ("progress", "worker_back", {"worker": 2, "seconds": 90.0, "without_store": 80.0},
         "worker 2 pushes again after 1 min 30 s; the store gave it no answer for 1 min 20 s"),
        ("progress", "worker_back", {"worker": 2, "seconds": 90.0, "without_store": 0.0},
         "worker 2 pushes again after 1 min 30 s"),
        ("progress", "worker_slow", {"worker": 3, "ratio": 3.04},
         "worker 3 is slow: its blocks take 3.0 times as long as those of the others"),
        ("progress", "version_damaged", {"shard": 0, "reason": "a digest differs"},
         "the newest version of shard 0 is damaged, the one before is taken: a digest differs"),
        ("progress", "step", {"step": 4}, None),
        ("note", "save_failed by name only", {}, None),
    ],
)  # fmt: skip
def test_trouble_is_one_sentence_and_progress_is_none(kind, text, data, said):
    assert warning_of(GangEvent(kind=kind, text=text, data=data)) == said
