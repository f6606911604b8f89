"""What ranks took, read from what they wrote down: also where one died in the middle of a step."""

import json

from tests.faults.t.ranks import samples_by_step


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))


def reported(event, step, generation):
    return {"event": event, "step": step, "generation": generation, "rank": 0, "mono": 10.0 * generation + step}


def test_step_that_was_saved_counts_though_its_rank_died_before_it_said_so(tmp_path):
    steps = [reported("step", 1, 0), reported("resumed", 2, 1), reported("step", 3, 1)]
    write(tmp_path / "out" / "ranks" / "0.jsonl", steps)
    taken = [(0, [1, 2]), (0, [3, 4]), (0, [5, 6]), (1, [5, 6])]
    write(tmp_path / "samples-0.jsonl", [{"generation": number, "samples": found} for number, found in taken])
    assert samples_by_step(tmp_path, global_batch=2) == [[1, 2], [3, 4], [5, 6]]


def test_step_that_was_lost_is_taken_from_the_generation_that_did_it_again(tmp_path):
    steps = [*(reported("step", each, 0) for each in (1, 2, 3)), reported("resumed", 2, 1), reported("step", 3, 1)]
    write(tmp_path / "out" / "ranks" / "0.jsonl", steps)
    taken = [(0, [1, 2]), (0, [3, 4]), (0, [5, 6]), (1, [7, 8])]
    write(tmp_path / "samples-0.jsonl", [{"generation": number, "samples": found} for number, found in taken])
    assert samples_by_step(tmp_path, global_batch=2) == [[1, 2], [3, 4], [7, 8]]
