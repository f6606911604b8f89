"""`member.toml` of a kit: written by `gangline federate join`, changed by the member's administrator alone."""

import json
from pathlib import Path

from gangline.errors import ConfigError, storage_errors
from gangline.flare.kit import Kit, require_own
from gangline.spec.config.load import load_member_text
from gangline.spec.config.site_tables import MemberTable
from gangline.storage.folder.durable_files import replace_file


def read_settings(kit: Kit) -> MemberTable:
    """The settings of a member, read each time they count.

    Raises:
        ConfigError: Others may write the file or the folder of data is not there; with every problem of the file.
    """
    require_own(kit.settings)
    found = load_member_text(kit.settings.read_text(), file=str(kit.settings))
    if not Path(found.data).is_dir():
        raise ConfigError(f"{kit.settings}: data: wanted a folder, found none at {found.data}")
    return found


def write_settings(kit: Kit, *, data: Path, epsilon: float) -> None:
    """Write the settings of a new member; those of an earlier `join` stay as they are but for these two.

    Raises:
        StorageError: The kit cannot be written.
    """
    wanted = {"data": json.dumps(str(data)), "epsilon": str(float(epsilon))}
    with storage_errors(kit.settings):
        kit.own.mkdir(mode=0o700, exist_ok=True)
        before = kit.settings.read_text().splitlines() if kit.settings.exists() else []
        kept = [line for line in before if line.partition("=")[0].strip() not in wanted]
        text = [*(f"{key} = {value}" for key, value in wanted.items()), *kept]
        replace_file(kit.settings, "\n".join([*text, ""]).encode(), durable=True)
        kit.settings.chmod(0o600)
