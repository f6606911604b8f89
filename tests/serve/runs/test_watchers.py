"""A watch of one run: it outlives a record that cannot be read, and looks at it once more."""

import asyncio
from dataclasses import replace

from tests.serve.world import record_of

from gangline.serve.runs.watchers import RunWatchers, Subscriber


def test_a_record_that_cannot_be_read_ends_no_watch(still):
    record = record_of(still.desk, "alpha", "open")
    key = f"{record.prefix}/record.json"

    async def watched():
        looker, watchers = Subscriber(asyncio.get_running_loop()), RunWatchers(still.desk)
        watchers.look(record, looker)
        still.desk.store.put(key, b"{")
        quiet = await looker.next(2.5)
        still.desk.store.put(key, replace(record, seq=record.seq + 1).to_json())
        news = await looker.next(20.0)
        watchers.close()
        return quiet, news

    quiet, news = asyncio.run(watched())
    assert quiet is None
    assert (news.kind, news.seq) == ("record", record.seq + 1)
