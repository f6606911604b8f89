"""Events of a watch whose server, or somebody on the way, is hostile."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.launch.kubernetes.client.api import ApiExpired, ApiUnavailable
from gangline.launch.kubernetes.client.streaming import MAX_EVENT_BYTES, is_well_formed, watch_events

GOOD = b'{"type":"ADDED","object":{"metadata":{"name":"good","uid":"1","resourceVersion":"7"}}}\n'
HOSTILE = {
    "no JSON": b"<html>",
    "no object": b'{"type":"ADDED","object":7}',
    "no type": b'{"object":{"metadata":{}}}',
    "a type that is a list": b'{"type":["ADDED"],"object":{"metadata":{}}}',
    "another type": b'{"type":"EXPLODED","object":{"metadata":{}}}',
    "no metadata": b'{"type":"ADDED","object":{}}',
    "a name that is no word": b'{"type":"ADDED","object":{"metadata":{"name":{"a":1}}}}',
    "a label that is no word": b'{"type":"ADDED","object":{"metadata":{"labels":{"a":1}}}}',
    "a status that is a list": b'{"type":"ADDED","object":{"metadata":{},"status":[]}}',
    "too deep for the parser": b'{"type":"ADDED","object":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "too deep for consumers": b'{"type":"ADDED","object":{"metadata":{},"x":' + b"[" * 200 + b"]" * 200 + b"}}",
    "too large": b'{"type":"ADDED","object":{"x":"' + b"x" * (MAX_EVENT_BYTES + 1) + b'"}}',
    "a number too large": b'{"type":"ADDED","object":{"metadata":{"generation":' + b"9" * 5000 + b"}}}",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.row("F5")
def test_hostile_object_is_set_aside_alone(line):
    aside = []
    found = list(watch_events([GOOD + line, b"\n" + GOOD], set_aside=aside.append))
    assert [each.object["metadata"]["name"] for each in found] == ["good", "good"]
    assert len(aside) == 1


@settings(max_examples=300)
@given(lines=st.lists(st.binary(max_size=200), max_size=5))
@pytest.mark.row("F5")
def test_no_bytes_end_the_loop(lines):
    junk = b"\n".join(line.replace(b"ERROR", b"") for line in lines)
    found = list(watch_events([junk, b"\n", GOOD], set_aside=lambda _: None))
    assert found[-1].object["metadata"]["name"] == "good"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@settings(max_examples=300)
@given(metadata=json_values, spec=json_values, status=json_values, labels=json_values)
@pytest.mark.row("F5")
def test_what_is_sound_has_the_shape_that_consumers_rely_on(metadata, spec, status, labels):
    for about in (metadata, {"name": "a", "labels": labels}):
        body = {"metadata": about, "spec": spec, "status": status}
        line = json.dumps({"type": "ADDED", "object": body}).encode()
        for event in watch_events([line], set_aside=lambda _: None):
            assert all(isinstance(event.object[part], dict) for part in ("metadata", "spec", "status"))
            assert isinstance(event.object["metadata"].get("name", ""), str)


def test_error_410_is_gone_and_every_other_is_away():
    with pytest.raises(ApiExpired):
        list(watch_events([b'{"type":"ERROR","object":{"code":410,"message":"too old"}}'], set_aside=print))
    with pytest.raises(ApiUnavailable, match="etcd is tired"):
        list(watch_events([b'{"type":"ERROR","object":{"code":500,"message":"etcd is tired"}}'], set_aside=print))


def test_bookmark_has_only_a_version():
    line = b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"},"spec":{},"status":{}}}'
    (found,) = watch_events([line], set_aside=print)
    assert (found.kind, found.object["metadata"]["resourceVersion"]) == ("bookmark", "9")


def test_object_without_labels_is_sound():
    assert is_well_formed({"metadata": {"name": "a", "labels": None}})
