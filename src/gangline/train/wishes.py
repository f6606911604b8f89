"""Brings the wish for another number of ranks from the store, which ranks know, to the keeper, which decides."""

from gangline.errors import IntegrityError
from gangline.spec.resizing import ResizeRequest, resize_key
from gangline.train.context import Context
from gangline.train.journal import replace
from gangline.train.profiling.asked import Lookout
from gangline.train.resize import RESIZE_FILE


def watch_for_wishes(context: Context) -> Lookout | None:
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
        replace(wish, request.to_json(), durable=False)

    return Lookout(look)
