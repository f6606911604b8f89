"""Where a search is kept: one document in the store, named by what was asked."""

from base64 import b32encode
from hashlib import sha256

from gangline.spec.bisect import BisectState
from gangline.spec.codec import canonical
from gangline.storage.protocol import ObjectStore


def bisect_id(project: str, *question: object) -> str:
    """The same question has the same id."""
    word = b32encode(sha256(canonical([project, *question])).digest()).decode().lower()[:6]
    return f"{project}-bisect-{word}"


def state_key(project: str, name: str) -> str:
    return f"bisects/{project}/{name}/state.json"


def keep(store: ObjectStore, state: BisectState) -> None:
    store.put(state_key(state.project, state.id), state.to_json())


def read(store: ObjectStore, project: str, name: str) -> BisectState | None:
    blob = store.get(state_key(project, name))
    return None if blob is None else BisectState.from_json(blob.data)
