"""What `gangline federate join` closes in a member's kit, and the check of it before each start and each job.

NVFlare's own settings let a project admin send code, run shell commands on a member and read its logs, and allow 85
classes in jobs. A member of gangline allows one class, no code and no command; logs stay where they are.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError, IntegrityError, storage_errors
from gangline.flare.kit import Kit, read_settings
from gangline.storage.folder.durable_files import replace_file

EXECUTOR = "gangline.flare.executor.MemberExecutor"
GUARD = "gangline.flare.guard.MemberGuard"
_PARTS = ("nvflare.app_common.resource_managers.", "nvflare.app_common.resource_consumers.",
          "nvflare.app_common.job_launcher.client_process_launcher.")  # fmt: skip
"""Beginnings of NVFlare's classes that a member's client needs besides the guard."""
_CLOSED = {"class_list_enforcement_mode": "enforce", "class_allow_list": [EXECUTOR], "allow_log_streaming": False}
"""Settings of a member's client, whatever its kit brings."""
_GRANTED = ("submit_job", "manage_job", "view", "download_job")
_REFUSED = ("clone_job", "operate", "shell_commands", "byoc", "server-predeployed-flwr")
_ROLES = ("project_admin", "org_admin", "lead", "member")
RIGHTS = {
    "format_version": "1.0",
    "permissions": {
        role: dict.fromkeys(_GRANTED, "any") | dict.fromkeys(_REFUSED, "none") for role in _ROLES
    },
}  # fmt: skip
"""Rights of every role at a member."""


def close(kit: Kit) -> None:
    """Write the site's settings so that a job of ours runs and nothing else does.

    Raises:
        ConfigError: The kit lacks NVFlare's own settings.
        StorageError: The kit cannot be written.
    """
    plain = read_settings(kit.local("resources.json.default"))
    plain |= _CLOSED
    kept = [each for each in plain.get("components", []) if str(each.get("path", "")).startswith(_PARTS)]
    plain["components"] = [*kept, {"id": "gangline_guard", "path": GUARD, "args": {}}]
    startup = {path.name: sha256(path.read_bytes()).hexdigest() for path in _startup_files(kit)}
    for path, value in (
        (kit.local("resources.json"), plain), (kit.local("authorization.json"), RIGHTS), (_digests(kit), startup)
    ):  # fmt: skip
        with storage_errors(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, json.dumps(value, indent=2).encode(), durable=True)


def require_closed(kit: Kit) -> None:
    """Raises IntegrityError where the kit grants more than `close` left, or its startup files were changed."""
    for problem in (_opened_resources(kit), _opened_rights(kit), _changed_startup(kit)):
        if problem:
            raise IntegrityError(f"{problem}; `gangline federate join {kit.folder}` closes it again")


def _opened_resources(kit: Kit) -> str | None:
    path = kit.local("resources.json")
    plain = _settings(path)
    for key, value in _CLOSED.items():
        if plain.get(key) != value:
            return f"{path}: {key}: wanted {json.dumps(value)}, found {json.dumps(plain.get(key))[:80]}"
    paths = [str(each.get("path", "")) for each in plain.get("components", [])]
    other = [each for each in paths if each != GUARD and not each.startswith(_PARTS)]
    if other or GUARD not in paths:
        return f"{path}: components: wanted {GUARD} and what runs jobs, found {', '.join(other or paths) or 'none'}"
    return None


def _opened_rights(kit: Kit) -> str | None:
    path = kit.local("authorization.json")
    permissions = _settings(path).get("permissions")
    if not isinstance(permissions, dict):
        return f"{path}: wanted permissions by role, found none"
    for role, granted in permissions.items():
        for right in _REFUSED:
            if not isinstance(granted, dict) or granted.get(right) != "none":
                found = granted.get(right) if isinstance(granted, dict) else granted
                return f"{path}: {role}.{right}: wanted none, found {found}"
    return None


def _changed_startup(kit: Kit) -> str | None:
    wanted = _settings(_digests(kit))
    for path in _startup_files(kit):
        if wanted.get(path.name) != sha256(path.read_bytes()).hexdigest():
            return f"{path}: wanted the file that was there when the member joined, found another"
    return None


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = read_settings(path)
    except ConfigError as error:
        raise IntegrityError(f"{error}; `gangline federate join` writes it") from error
    return settings if isinstance(settings, dict) else {}


def _startup_files(kit: Kit) -> list[Path]:
    return sorted(path for path in (kit.folder / "startup").iterdir() if path.is_file())


def _digests(kit: Kit) -> Path:
    return kit.own / "startup.json"
