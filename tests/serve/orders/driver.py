"""Stands in for `gangline run` where only what a service does with it counts: bears a run, leads it to a quick end.

How it ends is the second word of the commit's subject: `pass`, `refuse`, `hang` (until it is told to stop), `room`
(20), `away` (40), `die` (a signal), `bug` (1), `config` (10). It takes the run's lease as every driver does, and writes
a line to $STARTS for each run that it drives, so that tests can count.
"""

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from gangline.errors import GanglineError
from gangline.line.record import runs, states
from gangline.line.record.store import RecordStore
from gangline.line.request.run_request import CommitOrigin, resolve_request
from gangline.line.request.trust import awaits_approval
from gangline.line.run import lease
from gangline.line.run.create import find_or_create_run
from gangline.signing.record_seal import Sealer
from gangline.spec.config.load import load_site
from gangline.spec.record import Driver
from gangline.storage import site_paths
from gangline.units import now

CODES = {"room": 20, "away": 40, "bug": 1, "config": 10}


def main():
    try:
        run()
    except GanglineError as error:
        fail(error.exit_code, str(error))


def run():
    asked = arguments()
    repo = Path(asked.path)
    origin = CommitOrigin(branch=asked.branch, pull_request=asked.pull_request, trust=asked.trust)
    question = resolve_request(repo, commit=asked.commit, overrides=asked.set or (), strategy=None, origin=origin)
    word = question.subject.split()[1] if " " in question.subject else "pass"
    if word == "config":
        fail(10, "line.toml: something is wrong")
    site = load_site(Path(asked.site), environ=os.environ)
    store, sealer = site_paths.open_site_store(repo, site, os.environ), Sealer.of(site, os.environ)
    found = find_or_create_run(store, question, again=asked.again, target="local", site=site, sealer=sealer)
    if found.record.run.state == "ended":
        sys.exit(found.record.run.exit_code)
    drive(RecordStore.of(store, found.record, sealer), found.record, word)


def drive(records, record, word):
    holder = lease.this_process()
    try:
        mine = lease.acquire_lease(records.store, records.prefix, holder=holder, at_least=record.run.driver.token)
    except lease.HeldError as error:
        fail(20, str(error))
    driver = Driver(holder=holder, token=mine.token)
    with Path(os.environ["STARTS"]).open("a") as starts:
        starts.write(f"{record.run.id} {os.getpid()}\n")
    print(json.dumps({"event": "run_started", "run": record.run.id}), flush=True)
    with lease.renewed_lease(records.store, records.prefix, mine, on_problem=print):
        record = records.change(lambda each: replace(each, run=replace(each.run, driver=driver)), driver=driver)
        time.sleep(float(os.environ.get("DRIVE_SECONDS", "0")))
        if awaits_approval(record):
            fail(20, f"{record.run.id} is of a fork")
        act(records, driver, word)


def act(records, driver, word):
    while word == "hang" and not records.read().run.cancel_requested:
        time.sleep(0.05)
    if word in CODES and not Path(os.environ["STARTS"] + ".healed").exists():
        fail(CODES[word], f"it is {word}")
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    verdict, code = {"refuse": ("refused", 60), "hang": ("cancelled", 70)}.get(word, ("passed", 0))
    ended = records.change(
        lambda each: states.end_run(each, verdict, now=now(), reason=f"it is {word}", exit_code=code), driver=driver
    )
    runs.unmark_open(records.store, ended)
    sys.exit(code)


def fail(code, said):
    print(f"error: {said}", file=sys.stderr)
    sys.exit(code)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--site")
    parser.add_argument("--commit")
    parser.add_argument("--branch")
    parser.add_argument("--pull-request", type=int)
    parser.add_argument("--trust", default="own")
    parser.add_argument("--set", action="append")
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
