"""Classes that run inside a member's NVFlare: the guard of its client, and the executor of its jobs."""

import json
from types import SimpleNamespace

import pytest
from tests.flare.test_join import change, kit

__all__ = ["kit"]
nvflare = pytest.importorskip("nvflare", reason="nvflare is not installed")

from nvflare.apis.event_type import EventType  # noqa: E402
from nvflare.apis.fl_constant import FLContextKey  # noqa: E402
from nvflare.apis.fl_context import FLContext  # noqa: E402
from nvflare.apis.fl_exception import UnsafeComponentError  # noqa: E402
from nvflare.apis.shareable import Shareable  # noqa: E402
from nvflare.apis.signal import Signal  # noqa: E402

from gangline.flare.executor import MemberExecutor  # noqa: E402
from gangline.flare.guard import TAKEN, MemberGuard  # noqa: E402


def context(kit):
    """What NVFlare hands to a component of this kit's client."""
    found = FLContext()
    workspace = SimpleNamespace(get_root_dir=lambda: str(kit.folder))
    found.set_prop(FLContextKey.WORKSPACE_OBJECT, workspace, private=True, sticky=False)
    return found


@pytest.mark.row("FL4")
def test_a_client_whose_settings_were_opened_does_not_start(kit):
    MemberGuard().handle_event(EventType.SYSTEM_BOOTSTRAP, context(kit))
    change(kit, "resources.json", allow_log_streaming=True)
    with pytest.raises(UnsafeComponentError, match="allow_log_streaming: wanted false, found true"):
        MemberGuard().handle_event(EventType.SYSTEM_BOOTSTRAP, context(kit))


@pytest.mark.row("FL4")
def test_requests_of_a_server_beyond_jobs_have_no_handler(kit):
    processors = dict.fromkeys([*TAKEN, "sys.shell", "sys.cat", "train.configure"], "handler")
    engine = SimpleNamespace(admin_agent=SimpleNamespace(processors=processors))
    found = context(kit)
    found.get_engine = lambda: engine
    MemberGuard().handle_event(EventType.SYSTEM_START, found)
    assert processors.keys() == TAKEN


@pytest.mark.row("FL4")
@pytest.mark.parametrize("task", ["offer", "train", "sum"])
def test_a_job_runs_nothing_once_settings_were_opened(kit, task):
    change(kit, "resources.json", allow_log_streaming=True)
    answer = MemberExecutor().execute(task, Shareable({"offer": b"{}"}), context(kit), Signal())
    assert {key: each for key, each in answer.items() if key in ("refused", "answer")} == {"refused": "code"}


def test_rights_of_a_role_are_those_that_joining_wrote(kit):
    plain = json.loads(kit.local("authorization.json").read_text())["permissions"]
    plain["lead"]["byoc"] = "any"
    change(kit, "authorization.json", permissions=plain)
    with pytest.raises(UnsafeComponentError, match=r"lead\.byoc: wanted none, found any"):
        MemberGuard().handle_event(EventType.SYSTEM_BOOTSTRAP, context(kit))
