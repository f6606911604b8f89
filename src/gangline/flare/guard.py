"""Part of a member's NVFlare client that refuses to start with open settings, and takes no commands beyond jobs."""

from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.private.defs import SysCommandTopic, TrainingTopic
from nvflare.widgets.widget import Widget

from gangline.errors import GanglineError
from gangline.flare.join import require_closed
from gangline.flare.kit import CLIENT, open_kit

TAKEN = frozenset({
    TrainingTopic.CHECK_STATUS, TrainingTopic.GET_SCOPES, TrainingTopic.DEPLOY, TrainingTopic.START_JOB,
    TrainingTopic.ABORT, TrainingTopic.ABORT_TASK, TrainingTopic.DELETE_RUN, TrainingTopic.NOTIFY_JOB_STATUS,
    TrainingTopic.CHECK_RESOURCE, TrainingTopic.CANCEL_RESOURCE, SysCommandTopic.REPORT_VERSION,
})  # fmt: skip
"""Requests of a server that a member obeys. Whether a request needs a right is said by the server that sends it, so
rights alone do not protect from a server: what is not here is not taken at all."""


class MemberGuard(Widget):  # type: ignore[misc]  # nvflare has no types
    """Site component of a member; `gangline federate join` puts it into `local/resources.json`."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Check at the start, and drop the handlers of all other requests once they are there."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
            try:
                require_closed(open_kit(Path(workspace.get_root_dir()), CLIENT))
            except GanglineError as error:
                raise UnsafeComponentError(str(error)) from error
        agent = getattr(fl_ctx.get_engine(), "admin_agent", None)
        if event_type == EventType.SYSTEM_START and agent is not None:
            for topic in set(agent.processors) - TAKEN:
                del agent.processors[topic]
