"""Rank of a member: answers calls of rounds with trainings on the member's own folder of data.

python -m gangline.train.roles.federated_member PLAN.json DATA ROUNDS NAME TRAININGS, in the folder of the code layer
and in a sandbox without network, until it is killed. A task finds its data at `options["folder"]` of `build_data`; the
files in that folder are also `text` and `shards`, as those of a gang are.
"""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gangline.errors import ConfigError, GanglineError, TrainingError
from gangline.federated.mailbox import Mailbox
from gangline.federated.protocol import Contribution, RoundAnswers, RoundCall
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Plan
from gangline.train.account.clock import PhaseClock
from gangline.train.account.event_log import EventLog
from gangline.train.loop.engine import TrainingJob
from gangline.train.loop.member_training import LocalMember, MemberTraining
from gangline.train.loop.private_training import RecordPrivacy
from gangline.train.loop.trainer import Trainer
from gangline.train.runtime import rendezvous
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.data_splits import build_split
from gangline.train.runtime.device_mesh import Meshes
from gangline.train.task import Task, load_task

_POLL_SECONDS = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve rounds; returns the exit code, and only after an error."""
    os.dup2(2, 1)  # nobody reads what model code prints, and a full pipe would stop it
    plan_file, data, rounds, name, made = arguments or sys.argv[1:]
    try:
        plan = Plan.from_json(Path(plan_file).read_bytes())
        _serve(plan, Path(data).resolve(), Mailbox(Path(rounds)), name=name, made=int(made))
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception:  # model code may raise whatever it likes
        traceback.print_exc()
    return TrainingError.exit_code


def _serve(plan: Plan, data: Path, box: Mailbox, *, name: str, made: int) -> None:
    """Answer calls for ever; `made` trainings of the run were made in earlier processes."""
    if plan.federation is None or plan.program.task is None:
        raise ConfigError("plan: wanted the task of a federation, found another program")
    task = load_task(plan.program.task)
    trainer = _trainer(replace(plan, mesh=Mesh()), task)
    train, holdout = (_open(plan, task, split, data) for split in ("train", "holdout"))
    member = LocalMember(
        name=name, train=train, holdout=holdout, privacy=RecordPrivacy.of(plan, samples=len(train))
    )  # fmt: skip
    if member.privacy is not None:
        member.privacy.resume(made)
    training = MemberTraining(trainer)
    while True:
        call = box.next_call()
        if call is None:
            time.sleep(_POLL_SECONDS)
        else:
            answer = _answer(training, member, call)
            spent = None if member.privacy is None else member.privacy.spent()
            box.answer(call, RoundAnswers(contributions=(answer,), spent=spent))


def _answer(training: MemberTraining, member: LocalMember, call: RoundCall) -> Contribution:
    """Metrics of the call's weights on the held-out samples, then what training made of them."""
    judged = training.judge(member, call)
    return replace(training.train(member, call), metrics=judged.metrics) if call.trains else judged


def _trainer(plan: Plan, task: Task) -> Trainer:
    """Builds the model on this process alone."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    context = RankContext(
        plan=plan, rank=0, device=device, groups=rendezvous.join_alone("cpu"), meshes=Meshes.of(plan, 0),
        clock=PhaseClock("other"), events=EventLog(None, rank=0, generation=0),
    )  # fmt: skip
    return Trainer(context, task, TrainingJob(seed=plan.seed, steps=plan.last_step))


def _open(plan: Plan, task: Task, split: str, folder: Path) -> Any:
    """Samples of a split out of the folder of data."""
    files = sorted(str(path) for path in folder.iterdir() if path.is_file())
    return build_split(plan, task, split, files, seed=plan.seed, folder=str(folder))


if __name__ == "__main__":
    sys.exit(main())
