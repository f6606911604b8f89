"""What joining closes, and what is noticed when it is opened again."""

import json

import pytest
from tests.flare.offers import write_kit

from gangline.errors import ConfigError, IntegrityError
from gangline.flare.join import EXECUTOR, GUARD, close, require_closed
from gangline.flare.kit import CLIENT, SERVER, open_kit

COMMON = "nvflare.app_common"
DEFAULTS = {
    "class_list_enforcement_mode": "enforce", "class_allow_list": ["nvflare.app_common.np.np_trainer.NPTrainer"],
    "allow_log_streaming": True, "client": {"retry_timeout": 30},
    "components": [
        {"id": "resource_manager", "path": f"{COMMON}.resource_managers.gpu_resource_manager.GPUResourceManager"},
        {"id": "process_launcher", "path": f"{COMMON}.job_launcher.client_process_launcher.ClientProcessJobLauncher"},
        {"id": "site_log_streamer", "path": "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"},
    ],
}  # fmt: skip


@pytest.fixture
def kit(tmp_path):
    found = write_kit(tmp_path / "aachen")
    found.local("resources.json.default").write_text(json.dumps(DEFAULTS))
    close(found)
    return found


def change(kit, name, **keys):
    path = kit.local(name)
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


@pytest.mark.row("FL4")
def test_joining_leaves_one_class_no_code_no_commands_and_no_logs(kit):
    require_closed(kit)
    plain = json.loads(kit.local("resources.json").read_text())
    assert plain["class_allow_list"] == [EXECUTOR]
    assert plain["allow_log_streaming"] is False
    assert [each["id"] for each in plain["components"]] == ["resource_manager", "process_launcher", "gangline_guard"]
    assert plain["client"] == {"retry_timeout": 30}
    rights = json.loads(kit.local("authorization.json").read_text())["permissions"]
    assert set(rights) == {"project_admin", "org_admin", "lead", "member"}
    for granted in rights.values():
        assert {granted[each] for each in ("byoc", "shell_commands", "operate", "clone_job")} == {"none"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("class_allow_list", ["*"]), ("class_allow_list", [EXECUTOR, "nvflare.app_common."]),
        ("class_list_enforcement_mode", "warn"), ("allow_log_streaming", True),
        ("components", DEFAULTS["components"]), ("components", []),
        ("components", [{"id": "g", "path": GUARD}, DEFAULTS["components"][2]]),
    ],
)  # fmt: skip
def test_a_setting_that_was_opened_again_is_found(kit, key, value):
    change(kit, "resources.json", **{key: value})
    with pytest.raises(IntegrityError, match="gangline federate join"):
        require_closed(kit)


@pytest.mark.parametrize("right", ["byoc", "shell_commands", "operate", "clone_job", "server-predeployed-flwr"])
def test_a_right_that_was_granted_again_is_found(kit, right):
    rights = json.loads(kit.local("authorization.json").read_text())["permissions"]
    rights["lead"][right] = "any"
    change(kit, "authorization.json", permissions=rights)
    with pytest.raises(IntegrityError, match=f"lead.{right}: wanted none, found any"):
        require_closed(kit)
    change(kit, "authorization.json", permissions={"project_admin": "any"})
    with pytest.raises(IntegrityError, match=r"project_admin\.clone_job"):
        require_closed(kit)


def test_a_startup_file_that_was_changed_or_added_is_found(kit):
    path = kit.folder / "startup" / "rootCA.pem"
    path.write_text("another root")
    with pytest.raises(IntegrityError, match=r"rootCA\.pem: wanted the file"):
        require_closed(kit)
    path.write_text("")
    require_closed(kit)
    (kit.folder / "startup" / "more.sh").write_text("")
    with pytest.raises(IntegrityError, match=r"more\.sh"):
        require_closed(kit)


def test_a_kit_that_never_joined_is_not_closed(tmp_path):
    kit = write_kit(tmp_path / "aachen")
    with pytest.raises(IntegrityError, match="federate join"):
        require_closed(kit)


def test_a_kit_that_lacks_a_file_or_is_that_of_a_server_is_named(tmp_path):
    write_kit(tmp_path / "aachen")
    (tmp_path / "aachen/startup/client.key").unlink()
    with pytest.raises(ConfigError, match=r"startup/client\.key"):
        open_kit(tmp_path / "aachen", CLIENT)
    with pytest.raises(ConfigError, match="wanted a server kit"):
        open_kit(tmp_path / "aachen", SERVER)
