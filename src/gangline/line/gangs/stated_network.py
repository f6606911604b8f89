"""The network that a `fabric.toml` states, for plans and for the placement of gangs."""

from collections.abc import Mapping
from pathlib import Path

from gangline.fabric.fabric_file import fabric_of
from gangline.fabric.inventory import Fabric
from gangline.spec.config.load import load_fabric


def stated_network(environ: Mapping[str, str], file: Path | None = None) -> Fabric | None:
    """Of `file`, else of GANGLINE_FABRIC, the user's or the system's; None: nobody states one.

    Raises:
        ConfigError: A file that was named is missing, or one is wrong.
    """
    found = load_fabric(file, environ=environ)
    return None if found is None else fabric_of(found.fabric)
