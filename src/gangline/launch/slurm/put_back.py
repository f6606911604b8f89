"""Another life for a job whose keepers have saved, asked for by its script (`... .put_back FOLDER LIVES SECONDS`).

Slurm may refuse a requeue or not answer in time, so it is asked again until the seconds are over. `put-back.json` says
what hindered it, written at each try: Slurm may end this process, and all of its job, at any of them.
"""

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import GanglineError, StorageError
from gangline.launch.local.folder import GangFolder
from gangline.launch.slurm.commands import SlurmAway, SlurmCommands, SlurmJob
from gangline.launch.slurm.lives import read_life
from gangline.launch.slurm.states import WAITING
from gangline.spec.codec import Document

PUT_BACK = "put-back.json"
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 8.0
"""First pause between two tries; the pauses double."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PutBack(Document):
    """What became of a job after a life whose ranks were asked to stop."""

    life: int
    hindered_by: str = ""
    """Why it did not go back into the queue; empty: it did."""


def read_put_back(folder: GangFolder) -> PutBack | None:
    """What is noted of the current life; None: its script did not come so far."""
    with suppress(FileNotFoundError):
        found = PutBack.from_json((folder.home / PUT_BACK).read_bytes())
        life = read_life(folder)
        return found if life is not None and life.life == found.life else None
    return None


def queue_words(found: PutBack | None, job: SlurmJob | None) -> str:
    """What became of a job after a stop, for the end of its gang; None as `job`: Slurm has forgotten it."""
    number, state = (job.number, job.state) if job else ("of the gang", "unknown to Slurm")
    if found is None:
        return f"job {number} ended as {state}"
    if found.hindered_by:
        return f"job {number} did not go back into the queue: {found.hindered_by}"
    return f"job {number} went back into the queue and ended there as {state}"


def put_back(slurm: SlurmCommands, folder: GangFolder, *, lives: int, seconds: float) -> PutBack:
    """Ask Slurm for another life of the job until it has one, none is left, or the seconds are over."""
    life = read_life(folder)
    assert life is not None, "the script has begun a life"
    if life.life >= lives:
        return PutBack(life=life.life, hindered_by=f"this was life {life.life} of {lives}, as slurm.lives says")
    until, pause, may_be_done = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS, False
    while True:
        try:
            job = slurm.job(life.job)
            if folder.cancelled() is not None:
                return PutBack(life=life.life, hindered_by="it was cancelled")
            if job is not None and job.state in WAITING:
                return PutBack(life=life.life)
            if job is None or job.is_over or job.state == "COMPLETING":  # as after a scancel
                ending = f"Slurm was ending it already: {job.state if job else 'it is forgotten'}"
                return PutBack(life=life.life, hindered_by="" if may_be_done else ending)
            may_be_done = True
            slurm.requeue(life.job)
            return PutBack(life=life.life)
        except GanglineError as error:
            may_be_done = may_be_done and isinstance(error, SlurmAway)
            hindered = PutBack(life=life.life, hindered_by=str(error))
        _note(folder, hindered)
        if time.monotonic() > until:
            return hindered
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _note(folder: GangFolder, found: PutBack) -> None:
    try:
        folder.write(PUT_BACK, found)
    except (OSError, StorageError) as error:  # a full disk is no reason to end a job
        sys.stderr.write(f"gangline: cannot write {PUT_BACK}: {error}\n")


def main(words: Sequence[str]) -> int:
    """Put the job of the gang in the folder that is named back into the queue; returns 0 if it went there."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a job that went back is ended: the note comes first
    folder = GangFolder(Path(words[1]))
    found = put_back(SlurmCommands(), folder, lives=int(words[2]), seconds=float(words[3]))
    _note(folder, found)
    if found.hindered_by:
        sys.stderr.write(f"gangline: the job stays out of the queue: {found.hindered_by}\n")
    return 1 if found.hindered_by else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
