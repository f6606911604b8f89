"""What the keeper reads of a rank's log: its exception, or its last line."""

import subprocess
import sys

import pytest

from gangline.keeper.logs.log_files import rotate, write_generation_header
from gangline.keeper.logs.rank_files import failure_line, final_exception


def said(tmp_path, program, *args):
    log = tmp_path / "0.log"
    with log.open("ab") as file:
        done = subprocess.run([sys.executable, "-c", program, *args], stdout=file, stderr=file, check=False)
    return failure_line(log, code=done.returncode)


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


KILLED = """
import os, signal
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self): return 100
    def __getitem__(self, i): return os.kill(os.getpid(), signal.SIGKILL) if i == 20 else i
try:
    for _ in DataLoader(Rows(), batch_size=4, num_workers=1, collate_fn=list): pass
finally:
    raise ValueError("the writer was closed twice")
"""
BROKEN = """
import concurrent.futures, os
try:
    concurrent.futures.ProcessPoolExecutor(1).submit(os._exit, 1).result()
finally:
    raise ValueError("the writer was closed twice")
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [(KILLED, "is killed by signal: Killed"), (BROKEN, "A process in the process pool was terminated abruptly")],
)
def test_a_worker_that_died_is_the_cause_and_not_what_the_clean_up_raised(tmp_path, program, words):
    assert words in said(tmp_path, program)
    again = "\ntry: 1 / 0\nexcept ZeroDivisionError: raise KeyError('rate')"
    assert said(
        tmp_path, program.replace("finally:\n    raise ValueError", "except Exception:\n    print") + again
    ) == ("KeyError: 'rate'"), "the worker's death was handled, and this is of another chain"


GROUP = """
import click, sys
@click.group()
def main(): pass
@main.command(help="Start the training.")
@click.option("--lr", required=True)
def train(lr): pass
main(sys.argv[1:], prog_name="main.py")
"""
PARSER = """
import argparse, sys
parser = argparse.ArgumentParser(prog="main.py")
parser.add_subparsers(required=True, dest="task").add_parser("train").add_argument("--data", required=True)
parser.parse_args()
"""
USAGE = "it printed its usage: Usage"
HELP = """
import sys
print("Usage: fit.sh DATA\\n\\n  Start the training.")
sys.exit(2)
"""


@pytest.mark.parametrize(
    ("program", "arguments", "words"),
    [
        (
            GROUP, (),
            f"{USAGE}: main.py [OPTIONS] COMMAND [ARGS]...; a sub-command is missing in project.command",
        ),
        (GROUP, ("train",), "Error: Missing option '--lr'."),
        (PARSER, (), "main.py: error: the following arguments are required: task"),
        (PARSER, ("train",), "main.py train: error: the following arguments are required: --data"),
        (HELP, (), f"{USAGE}: fit.sh DATA; project.command lacks some of it"),
        (HELP.replace("(2)", "(3)"), (), "Start the training."),
        ("print('memory usage: 3 GB'); raise SystemExit(2)", (), "memory usage: 3 GB"),
    ],
)  # fmt: skip
def test_a_program_that_printed_its_usage_lacked_an_argument(tmp_path, program, arguments, words):
    assert said(tmp_path, program, *arguments) == words


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
    assert failure_line(log, code=1) == "", "there is no log yet"
    write_generation_header(log, rank=0, generation=0)
    with log.open("a") as file:
        file.write("ValueError: of the first generation\n")
    assert failure_line(log, code=1) == "ValueError: of the first generation"
    write_generation_header(log, rank=0, generation=1)
    assert failure_line(log, code=1) == ""


def test_log_that_was_moved_aside_is_read_on(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("x" * 100 + "\nwanted a GPU, found none\n")
    rotate([log], max_bytes=64)
    assert failure_line(log, code=1) == "wanted a GPU, found none"
