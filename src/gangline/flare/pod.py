"""First process of a coordinator's container, python -m gangline.flare.pod: unpacks the kits, fetches its orders from
the store, and keeps a coordinator running next to the rank of the pod.

The container is not ended by its own will: the cluster would start it again. What can never work is said to the rank,
with the call that it waits for, and ends the gang with the right exit code.
"""

import os
import signal
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import ConfigError, GanglineError, IntegrityError, StorageError
from gangline.federated.mailbox import Mailbox
from gangline.flare.coordinator import MODULE
from gangline.flare.kit import ADMIN, SERVER, Role, open_kit
from gangline.flare.orders import CoordinatorOrders, prepare
from gangline.flare.server import port_of, require_nvflare
from gangline.flare.supervisor import supervised
from gangline.spec.gang.driver_orders import coordinator_of
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import get_bounded
from gangline.storage.open import open_store

_MOST_ORDERS_BYTES = 16 << 20
_POLL_SECONDS = 1.0


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Run until the cluster asks the container to end; returns an exit code where another start may do better."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    box = Mailbox(Path(environ["GANGLINE_MAILBOX"]))
    try:
        folder = prepare_pod(environ)
    except StorageError as error:
        return _said(error)
    except GanglineError as error:
        _said(error)
        return _refuse_calls(box, error)
    with supervised(MODULE, folder, environ) as coordinator:
        code = coordinator.wait()
        sys.stderr.write((folder / "log").read_text(errors="replace")[-4000:])
    return code or _rest()


def prepare_pod(environ: Mapping[str, str]) -> Path:
    """Everything that the coordinator of this pod needs, in the folder that is returned.

    Raises:
        NotInstalledError: This image has no NVFlare 2.9.
        ConfigError: A kit lacks a file, or listens on another port than the Service.
        StorageError: The store failed, or lacks the orders.
        IntegrityError: The code is not what was offered.
    """
    wanted = coordinator_of(environ)
    assert wanted is not None, "a launcher sets the variable"
    require_nvflare(f"federation.image {wanted.image}")
    home, kits = Path(environ["HOME"]), Path(environ["GANGLINE_KITS"])
    server = _unpacked(kits / "server.tar", home / "server", SERVER)
    admin = _unpacked(kits / "admin.tar", home / "admin", ADMIN)
    if (port := port_of(open_kit(server, SERVER))) != wanted.port:
        raise ConfigError(f"federation.port: wanted {port}, the port of the kit, found {wanted.port}")
    orders, layer = _fetch(wanted.orders, environ)
    coordination = orders.at(kit=server, admin=admin, mailbox=Path(environ["GANGLINE_MAILBOX"]))
    prepare(home / "run", coordination, orders, layer)
    return home / "run"


def _unpacked(archive: Path, folder: Path, role: Role) -> Path:
    """The kit of an archive, which has `startup` and `local` at its top."""
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
            tar.extractall(folder)  # noqa: S202  # what the cluster's administrator made
    except (OSError, tarfile.TarError) as error:
        raise ConfigError(
            f"{archive.name}: wanted an archive of a kit, found: {error}; tar -C KIT -cf {archive.name} . makes one"
        ) from error
    return open_kit(folder, role).folder


def _fetch(place: str, environ: Mapping[str, str]) -> tuple[CoordinatorOrders, bytes]:
    """Orders of the driver, and the code layer that they offer."""
    credentials = environ.get("GANGLINE_STORE_CREDENTIALS_FILE")
    store = open_store(environ["GANGLINE_STORE"], credentials=Path(credentials) if credentials else None)
    blob = get_bounded(store, place, most_bytes=_MOST_ORDERS_BYTES)
    if blob is None:
        raise StorageError(f"store {store.url}: wanted the orders of the driver at {place}, found none")
    orders, key = CoordinatorOrders.from_json(blob.data), environ["GANGLINE_CODE"]
    if not key.endswith(f"/{orders.offer.code}"):
        raise IntegrityError(f"wanted an offer of the code {key}, found one of {orders.offer.code[:8]}")
    return orders, get_blob(store, key)


def _refuse_calls(box: Mailbox, error: GanglineError) -> int:
    """Answer whatever the rank asks with this error."""
    while True:
        if (call := box.next_call()) is not None:
            box.fail(call, error)
        time.sleep(_POLL_SECONDS)


def _rest() -> int:
    """The run has ended: wait for the end of the container."""
    while True:
        signal.pause()


def _said(error: GanglineError) -> int:
    sys.stderr.write(f"{error}\n")
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
