"""Bodies in memory: who sends little is read beside who sends much, stops, or never ends."""

import asyncio

import pytest
from starlette.requests import Request

from gangline.serve.web.body_limits import MAX_BYTES, BodyMemory, bounded_body
from gangline.serve.web.responses import RequestRefused

MIB = 1 << 20


def request_of(pieces, *, address="192.0.2.1", length=None, seconds=0.0, ends=True):
    """A request that brings one piece after the other."""
    left = list(pieces)

    async def receive():
        if not left:
            await asyncio.sleep(3600)
        await asyncio.sleep(seconds)
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left) or not ends}

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return Request({"type": "http", "headers": headers, "client": (address, 1), "method": "POST"}, receive)


async def read(request, body_memory, **how):
    async with bounded_body(request, body_memory, **how) as body:
        return body


def status_of(answer):
    return answer.status if isinstance(answer, RequestRefused) else answer if isinstance(answer, BaseException) else 200


async def together(body_memory, *requests, **how):
    return [
        status_of(each)
        for each in await asyncio.gather(*(read(each, body_memory, **how) for each in requests), return_exceptions=True)
    ]


def test_a_body_is_read_whole_and_its_room_is_given_back():
    async def story():
        body_memory = BodyMemory()
        async with bounded_body(request_of([b"ab", b"c"]), body_memory) as body:
            assert (body, body_memory.taken_bytes) == (b"abc", 3)
        assert body_memory.taken_bytes == 0

    asyncio.run(story())


def test_the_largest_body_of_an_address_gives_way_to_its_small_ones():
    large = request_of([b"x" * MIB] * 8, ends=False)
    small = [request_of([b"y" * 1000], seconds=0.2) for _ in range(5)]
    body_memory = BodyMemory(8 * MIB)
    assert asyncio.run(together(body_memory, large, *small)) == [503, *[200] * 5]
    assert body_memory.taken_bytes == 0


def test_who_holds_most_gives_way_to_others_whatever_they_send():
    greedy = [request_of([b"x" * MIB] * 4, ends=False, address="192.0.2.66") for _ in range(2)]
    modest = request_of([b"y" * MIB] * 2, seconds=0.2, address="192.0.2.7")
    found = asyncio.run(together(BodyMemory(8 * MIB), *greedy, modest, seconds=1.0))
    assert sorted(found[:2]) == [408, 503]
    assert found[2] == 200


def test_the_largest_itself_gives_way():
    first = request_of([b"x" * 100], ends=False)
    second = request_of([b"x" * 1000], seconds=0.1, ends=False)
    assert asyncio.run(together(BodyMemory(500), first, second, seconds=0.5)) == [408, 503]


def test_a_body_that_finds_no_room_for_its_last_piece_gives_way_too():
    async def story():
        body_memory = BodyMemory(100)
        async with bounded_body(request_of([b"x" * 90]), body_memory):
            return await together(body_memory, request_of([b"x" * 20], address="192.0.2.2")), body_memory.taken_bytes

    assert asyncio.run(story()) == ([503], 90)


def test_many_small_bodies_at_once_are_fewer_afterwards_and_never_more_than_there_is_room_for():
    many = [request_of([b"x" * 10] * 10, ends=False, address=f"192.0.2.{number}") for number in range(50)]
    body_memory = BodyMemory(1000)
    found = asyncio.run(together(body_memory, *many, seconds=0.5))
    assert set(found) == {408, 503}
    assert 7 <= found.count(408) <= 10
    assert body_memory.taken_bytes == 0


def test_what_was_read_to_its_end_never_gives_way():
    async def story():
        body_memory = BodyMemory(100)
        async with bounded_body(request_of([b"x" * 90]), body_memory) as body:
            codes = await together(body_memory, request_of([b"x" * 20] * 2, address="192.0.2.2"))
            return len(body), codes, body_memory.taken_bytes

    assert asyncio.run(story()) == (90, [503], 90)


def test_an_error_of_the_handler_stays_its_own():
    async def story():
        async with bounded_body(request_of([b"x"]), BodyMemory()):
            raise TimeoutError("of the handler")

    with pytest.raises(TimeoutError, match="of the handler"):
        asyncio.run(story())


@pytest.mark.parametrize("length", [MAX_BYTES + 1, "9" * 20])
def test_lengths_are_looked_at_before_anything_is_read(length):
    assert asyncio.run(together(BodyMemory(), request_of([], length=length))) == [413]


def test_a_body_that_does_not_end_is_given_up():
    dripping = request_of([b"x"] * 100, seconds=0.05)
    assert asyncio.run(together(BodyMemory(), dripping, seconds=0.5)) == [408]


def test_a_body_that_is_cut_off_is_refused():
    async def gone():
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "headers": [], "client": ("192.0.2.1", 1), "method": "POST"}, gone)
    assert asyncio.run(together(BodyMemory(), request)) == [400]
