"""What the keeper reads of a rank's log: its exception, or its last line."""

import subprocess
import sys

import pytest

from gangline.keeper.logs.log_files import rotate, write_generation_header
from gangline.keeper.logs.rank_files import final_exception, last_meaningful_line


def said(tmp_path, program, *args):
    log = tmp_path / "0.log"
    with log.open("ab") as file:
        subprocess.run([sys.executable, "-c", program, *args], stdout=file, stderr=file, check=False)
    return last_meaningful_line(log)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('step 1'); raise ValueError('no room')", "ValueError: no room"),
        ("raise KeyError('a') from ValueError('b')", "KeyError: 'a'"),
        ("raise RuntimeError('first of two\\nsecond of two')", "RuntimeError: first of two"),
        ("e = OSError('x'); e.add_note('-' * 20); e.add_note('a note'); raise e", "OSError: x"),
        ("def f(\n", "SyntaxError: '(' was never closed"),
        ("import sys; sys.exit('wanted --data, found none')", "wanted --data, found none"),
        ("print('loss 2.5'); print(); print('----'); raise SystemExit(3)", "loss 2.5"),
        ("print('10 %\\r20 %\\r30 %', end=''); raise SystemExit(3)", "30 %"),
        ("print('\\x1b[31mred\\x1b[0m\\x07 and \\u202eblue'); raise SystemExit(3)", "red and blue"),
        ("raise SystemExit(3)", ""),
    ],
)
def test_it_is_the_exception_or_the_last_thing_printed(tmp_path, program, words):
    assert said(tmp_path, program) == words


def test_exception_that_was_handled_long_before_is_not_it(tmp_path):
    program = """
import traceback
try:
    raise ValueError("handled")
except ValueError:
    traceback.print_exc()
for step in range(30):
    print("step", step)
raise SystemExit("wanted a GPU, found none")
"""
    assert said(tmp_path, program) == "wanted a GPU, found none"


CAUGHT = "import traceback\ntry:\n    raise ValueError('caught')\nexcept ValueError:\n    traceback.print_exc()\n"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (CAUGHT, "ValueError: caught"),
        (CAUGHT + "print()\n", "ValueError: caught"),
        (CAUGHT + "print('tried again, loss 2.5', flush=True)\n", ""),
        ("print('loss 2.5')\n", ""),
        ("print('Traceback (most recent call last):')\n", ""),
    ],
)
def test_a_traceback_closes_a_log_where_nothing_follows_it(tmp_path, program, words):
    said(tmp_path, program)
    assert final_exception(tmp_path / "0.log") == words
    write_generation_header(tmp_path / "0.log", rank=0, generation=2)
    assert final_exception(tmp_path / "0.log") == "", "that was the generation before"


def test_it_is_one_line_of_bounded_length(tmp_path):
    words = said(tmp_path, "raise ValueError('a ' * 10_000)")
    assert len(words) == 300
    assert words.endswith("…")


def test_what_an_earlier_generation_said_does_not_count(tmp_path):
    log = tmp_path / "0.log"
    assert last_meaningful_line(log) == "", "there is no log yet"
    write_generation_header(log, rank=0, generation=0)
    with log.open("a") as file:
        file.write("ValueError: of the first generation\n")
    assert last_meaningful_line(log) == "ValueError: of the first generation"
    write_generation_header(log, rank=0, generation=1)
    assert last_meaningful_line(log) == ""


def test_log_that_was_moved_aside_is_read_on(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("x" * 100 + "\nwanted a GPU, found none\n")
    rotate([log], max_bytes=64)
    assert last_meaningful_line(log) == "wanted a GPU, found none"
