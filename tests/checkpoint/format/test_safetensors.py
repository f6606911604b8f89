"""The safetensors reader and writer, against the safetensors package and against lies."""

import json
import tracemalloc

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangline.checkpoint.format.safetensors import ITEM_BYTES, header_bytes, header_length, parse_header, tensor_bytes
from gangline.checkpoint.host_tensors import DTYPES, NAMES, as_bytes
from gangline.errors import ConfigError, IntegrityError

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
names = st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
layouts = st.dictionaries(names, st.tuples(st.sampled_from(sorted(ITEM_BYTES)), shapes))


def file_of(tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> bytes:
    head = header_bytes({name: (NAMES[each.dtype], each.shape) for name, each in tensors.items()}, metadata)
    return head + b"".join(as_bytes(each) for each in tensors.values())


def parse(file: bytes):
    return parse_header(file[: header_length(file[:8], len(file))], len(file))


def header(entries, *, data: int, text: bytes | None = None) -> bytes:
    body = json.dumps(entries).encode() if text is None else text
    return len(body).to_bytes(8, "little") + body + bytes(data)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_package_reads_what_we_write_in_every_dtype(name):
    tensor = torch.arange(6).to(DTYPES[name]).reshape(2, 3)
    read = safetensors.torch.load(file_of({"x": tensor, "none": tensor[:0]}, {"a": "b"}))
    assert as_bytes(read["x"]) == as_bytes(tensor)
    assert (read["x"].dtype, read["x"].shape, read["none"].shape) == (tensor.dtype, tensor.shape, (0, 3))


@given(layouts)
def test_we_read_what_the_package_writes(layout):
    tensors = {name: torch.zeros(shape).to(DTYPES[dtype]) for name, (dtype, shape) in layout.items()}
    file = safetensors.torch.save(tensors)
    found = parse(file)
    assert {name: (each.dtype, each.shape) for name, each in found.items()} == layout
    assert all(each.size_bytes == tensor_bytes(each.dtype, each.shape) for each in found.values())


@given(layouts)
def test_header_of_any_layout_reads_back(layout):
    head = header_bytes(layout)
    size = len(head) + sum(tensor_bytes(*each) for each in layout.values())
    assert {name: (each.dtype, each.shape) for name, each in parse_header(head, size).items()} == layout
    assert len(head) % 8 == 0


def test_reserved_name_is_refused_when_written():
    with pytest.raises(ConfigError, match="rename the parameter"):
        header_bytes({"__metadata__": ("F32", (1,))})


LIES = {
    "length of the header beyond the file": (1 << 40).to_bytes(8, "little") + b"{}",
    "header above 64 MiB": (65 * 2**20).to_bytes(8, "little") + b"{}",
    "file shorter than a length": b"\x02\x00",
    "no JSON": header(None, data=0, text=b"{]"),
    "not UTF-8": header(None, data=0, text=b'{"\xff\xfe": 1}'),
    "a list": header([], data=0),
    "nested deeper than Python": header(None, data=0, text=b"[" * 500),
    "nested a million times": header(None, data=0, text=b"[" * 1_000_000),
    "duplicate keys": header(None, data=8, text=b'{"x":%b,"x":%b}' % ((json.dumps(entry()).encode(),) * 2)),
    "unknown keys": header({"x": entry() | {"more": 1}}, data=8),
    "missing keys": header({"x": {"dtype": "F32", "shape": [2]}}, data=8),
    "unknown dtype": header({"x": entry(dtype="F31")}, data=8),
    "dtype that is a list": header({"x": entry() | {"dtype": []}}, data=8),
    "size unlike dtype x shape": header({"x": entry(shape=(3,))}, data=8),
    "size that overflows 64 bits": header({"x": entry(shape=(2**62, 8))}, data=8),
    "negative size": header({"x": entry(shape=(-2, -1))}, data=8),
    "size that is true": header({"x": entry(shape=(True, 2))}, data=8),
    "size that is a float": header({"x": entry(shape=(2.0,))}, data=8),
    "end before start": header({"x": entry(offsets=(8, 0))}, data=8),
    "gap before the first": header({"x": entry(offsets=(4, 12))}, data=12),
    "gap between": header({"x": entry(), "y": entry(offsets=(12, 20))}, data=20),
    "overlap": header({"x": entry(), "y": entry(offsets=(4, 12))}, data=12),
    "one tensor twice": header({"x": entry(), "y": entry()}, data=8),
    "data missing at the end": header({"x": entry()}, data=7),
    "data left over at the end": header({"x": entry()}, data=9),
    "a number with a million digits": header(None, data=0, text=b'{"x":' + b"9" * 1_000_000 + b"}"),
}


@pytest.mark.parametrize("file", LIES.values(), ids=LIES.keys())
def test_lie_is_refused(file):
    with pytest.raises(IntegrityError):
        parse(file)


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda text: header(None, data=8, text=text))))
def test_any_bytes_parse_or_are_refused(file):
    try:
        found = parse(file)
    except IntegrityError:
        return
    assert sum(each.size_bytes for each in found.values()) < len(file)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
outlines = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["F32", "U8"]) | json_values, "shape": json_values, "data_offsets": json_values}
)


@given(st.dictionaries(st.text(max_size=4), outlines))
def test_any_header_of_the_right_outline_parses_or_is_refused(entries):
    try:
        found = parse(header(entries, data=8))
    except IntegrityError:
        return
    assert sum(each.size_bytes for each in found.values()) == 8


def test_dense_header_costs_a_bounded_multiple_of_its_own_size():
    text = b'{"x":[' + b",".join([b"[]"] * 300_000) + b"]}"
    tracemalloc.start()
    with pytest.raises(IntegrityError, match="nests more"):
        parse(header(None, data=0, text=text))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(text)
