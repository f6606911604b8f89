"""What a keeper reads of its ranks' own files."""

from gangline.keeper.logs.rank_files import exit_reason
from gangline.train.account.event_log import EventLog


def test_last_word_is_that_of_the_generation(tmp_path):
    path = tmp_path / "1.jsonl"
    for generation, reason in ((0, "StorageError: no space is left"), (1, "finished")):
        log = EventLog(path, rank=1, generation=generation)
        log.emit("done", exit=0, reason=reason)
        log.emit("ledger", seconds={})
        log.close()
    assert exit_reason(path, 0) == "StorageError: no space is left"
    assert exit_reason(path, 1) == "finished"


def test_rank_that_could_not_speak_has_no_last_word(tmp_path):
    path = tmp_path / "1.jsonl"
    assert exit_reason(path, 0) == ""
    path.write_text('{"event":"step","generation":0}\n{"event":"done","gen')
    assert exit_reason(path, 0) == ""
