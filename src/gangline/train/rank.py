"""A rank: joins its gang, does what the plan's role asks, ends with a number of the error tree."""

import os
import sys
import traceback

from gangline.errors import SIGTERM_CODE, ConfigError
from gangline.spec.plan import Plan
from gangline.train import context as contexts
from gangline.train.account.clock import Clock
from gangline.train.account.events import EventLog
from gangline.train.context import Context
from gangline.train.environment import RankEnvironment, strike_order
from gangline.train.failure import describe, exit_code_of
from gangline.train.joining import join
from gangline.train.roles import evaluate, prove, train
from gangline.train.task import Task, load_task

ROLES = {"train": train.run, "evaluate": evaluate.run, "prove": prove.run}


def main() -> int:
    """Be the rank that the environment describes; its exit code."""
    clock = Clock("start")
    environment = RankEnvironment.read(os.environ)
    events = EventLog(contexts.events_path(environment), rank=environment.rank, generation=environment.generation)
    context: Context | None = None
    try:
        plan = Plan.from_json(environment.plan.read_bytes())
        context = join(environment, plan, clock, events)
        code = ROLES[plan.role](context, _task(plan))
    except BaseException as error:
        traceback.print_exception(error, file=sys.stderr)
        code = exit_code_of(error)
        if context is not None:
            context.fail(code, describe(error))
        else:
            events.emit("done", exit=code, reason=describe(error))
            events.close()
    else:
        events.emit("done", exit=code, reason="stopped as asked" if code == SIGTERM_CODE else "finished")
        context.close()
    return code


def _task(plan: Plan) -> Task:
    if plan.program.task is None:
        raise ConfigError("plan.program names a command; a keeper starts it, not the task runtime")
    task = load_task(plan.program.task)
    order = strike_order(os.environ)
    if order is None:
        return task
    from gangline.train.struck import Struck

    return Struck(task, order)
