"""Copies requests for another number of ranks from the store to the keeper, which decides."""

from gangline.errors import IntegrityError
from gangline.keeper.ipc.requests import RESIZE_FILE
from gangline.spec.gang.status import ResizeRequest, resize_key
from gangline.storage.folder.durable_files import replace_file
from gangline.train.profiling.requests import RequestWatcher
from gangline.train.runtime.context import RankContext


def watch_resize_requests(context: RankContext) -> RequestWatcher | None:
    """Rank 0 of an elastic gang looks for one beside its training, until the lookout is stopped; others do not."""
    store, out = context.store, context.out
    if context.rank or store is None or out is None or not context.plan.sizes:
        return None
    key, wish = resize_key(context.plan.run_prefix), out.parent / RESIZE_FILE
    brought: bytes | None = None

    def look() -> bytes | None:
        nonlocal brought
        blob = store.get(key)
        if blob is not None and blob.data != brought:
            brought = blob.data
            _bring(brought)
        return brought

    def _bring(data: bytes) -> None:
        try:
            request = ResizeRequest.from_json(data)
        except IntegrityError as error:
            context.events.emit("resize_refused", reason=str(error))
            return
        replace_file(wish, request.to_json(), durable=False)

    return RequestWatcher(look)
