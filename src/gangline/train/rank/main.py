"""Main function of a rank: joins its gang, runs the role of the plan, exits with a code of the error tree."""

import sys
import traceback

from gangline.errors import SIGTERM_CODE, ConfigError
from gangline.keeper.ipc.environment import RankEnvironment, fault_order
from gangline.spec.plan import Plan
from gangline.train.account.clock import PhaseClock
from gangline.train.account.event_log import EventLog
from gangline.train.parameters import server
from gangline.train.rank.joining import join
from gangline.train.roles import evaluate, prove, score, train
from gangline.train.runtime import context as contexts
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.error_classification import describe, exit_code_of
from gangline.train.task import Task, load_task

ROLES = {"train": train.run, "evaluate": evaluate.run, "prove": prove.run}


def main() -> int:
    """Run the rank that the environment describes; returns its exit code."""
    clock = PhaseClock("start")
    environment = RankEnvironment.read()
    events = EventLog(contexts.events_path(environment), rank=environment.rank, generation=environment.generation)
    context: RankContext | None = None
    try:
        plan = Plan.from_json(environment.plan.read_bytes())
        context = join(environment, plan, clock, events)
        if plan.role == "score":
            code = score.run(context)
        elif plan.parameters is not None and plan.parameters.part == "servers":
            code = server.run(context)
        else:
            code = ROLES[plan.role](context, _load_task(plan))
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


def _load_task(plan: Plan) -> Task:
    if plan.program.task is None:
        raise ConfigError("plan.program: wanted a task, found a command; the keeper starts commands itself")
    task = load_task(plan.program.task)
    order = fault_order()
    if order is None:
        return task
    from gangline.train.rank.faulty_task import FaultyTask

    return FaultyTask(task, order)
