"""A watch of one run: it outlives a record that cannot be read, and looks at it once more."""

import asyncio
from dataclasses import replace

from tests.serve.world import record_of

from gangline.serve.runs.watchers import RunWatchers, Subscriber


def test_a_record_that_cannot_be_read_ends_no_watch(still):
    record = record_of(still.context, "alpha", "open")
    key = f"{record.prefix}/record.json"

    async def watched():
        subscriber, watchers = Subscriber(asyncio.get_running_loop()), RunWatchers(still.context)
        watchers.subscribe(record, subscriber)
        still.context.store.put(key, b"{")
        quiet = await subscriber.next(2.5)
        still.context.store.put(key, replace(record, seq=record.seq + 1).to_json())
        event = await subscriber.next(20.0)
        watchers.close()
        return quiet, event

    quiet, event = asyncio.run(watched())
    assert quiet is None
    assert (event.kind, event.seq) == ("record", record.seq + 1)
