"""Manifests: one bit, one byte, one wrong key, and nothing is parsed."""

import contextlib
import json
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.checkpoint.format.manifest import (
    BLOCK_BYTES,
    Envelope,
    FileEntry,
    Manifest,
    RefusedCheckpoint,
    Signature,
    check_sizes,
    list_checkpoints,
    read_manifest,
    sign_manifest,
    verify_manifest,
)
from gangline.errors import IntegrityError
from gangline.spec.codec import canonical

KEY = b"key"


def entry(data: bytes) -> FileEntry:
    digest = sha256(data).hexdigest()
    return FileEntry(size_bytes=len(data), blocks=(digest,) if data else ())


def manifest(**changes) -> Manifest:
    files = {f"g0003-{name}": entry(name.encode()) for name in ("index.json", "state.json", "r00000-0.safetensors")}
    return Manifest(**({"run": "r", "step": 7, "generation": 3, "plan_sha256": "ab", "files": files} | changes))


def test_signed_manifest_reads_back():
    assert verify_manifest(sign_manifest(manifest(), KEY), KEY) == manifest()


def test_layout_is_the_documented_one():
    plain = json.loads(sign_manifest(manifest(), KEY))
    payload = json.loads(plain["payload"])
    assert [each["algorithm"] for each in plain["signatures"]] == ["hmac-sha256"]
    assert (payload["format"], payload["step"], payload["generation"]) == ("gangline-checkpoint/2", 7, 3)
    assert payload["files"]["g0003-index.json"].keys() == {"size_bytes", "blocks"}


def test_every_single_bit_of_a_manifest_counts():
    raw = bytearray(sign_manifest(manifest(), KEY))
    accepted = []
    for position in range(8 * len(raw)):
        raw[position // 8] ^= 1 << position % 8
        with contextlib.suppress(RefusedCheckpoint):
            verify_manifest(bytes(raw), KEY)
            accepted.append(position)
        raw[position // 8] ^= 1 << position % 8
    assert accepted == []


@given(st.binary(max_size=300) | st.text(alphabet='{}[]":,0 payloadsigntures', max_size=300).map(str.encode))
def test_any_bytes_are_refused(raw):
    with pytest.raises(RefusedCheckpoint):
        verify_manifest(raw, KEY)


@given(st.binary(max_size=40), st.integers(0, 2000), st.integers(0, 40))
def test_edited_manifest_is_refused(junk, at, cut):
    raw = sign_manifest(manifest(), KEY)
    edited = raw[:at] + junk + raw[at + cut :]
    if edited == raw:
        return
    with pytest.raises(RefusedCheckpoint):
        verify_manifest(edited, KEY)


@pytest.mark.parametrize("edit", [
    lambda raw: raw + b"\n",
    lambda raw: json.dumps(json.loads(raw), indent=1).encode(),
    lambda raw: raw.replace(b"{", b'{"payload":"other",', 1),
], ids=["end of line", "indented", "twin key"])  # fmt: skip
def test_manifest_that_says_the_same_in_another_form_is_refused(edit):
    """One form has one digest, and nothing hides between what one reader takes and another leaves."""
    with pytest.raises(RefusedCheckpoint, match="does not have the one form"):
        verify_manifest(edit(sign_manifest(manifest(), KEY)), KEY)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b"{" * 100, b'{"payload":"\\ud800","signatures":[]}', b"null", b""])
def test_hostile_json_is_refused(raw):
    with pytest.raises(RefusedCheckpoint):
        verify_manifest(raw, KEY)


def test_key_of_another_project_is_refused_by_its_name():
    with pytest.raises(RefusedCheckpoint, match=r"signed by key .*, wanted key"):
        verify_manifest(sign_manifest(manifest(), b"other"), KEY)


def test_payload_is_not_parsed_before_its_signature_holds():
    forged = Signature(algorithm="hmac-sha256", key_id=sha256(b"gangline-key-id\0" + KEY).hexdigest()[:16], value="0")
    with pytest.raises(RefusedCheckpoint, match="signature does not fit"):
        verify_manifest(canonical(Envelope(payload="no json at all", signatures=(forged,))), KEY)


def test_manifest_without_signature_is_refused():
    bare = Envelope(payload=canonical(manifest()).decode(), signatures=())
    with pytest.raises(RefusedCheckpoint, match="wanted an hmac-sha256 signature"):
        verify_manifest(canonical(bare), KEY)


@pytest.mark.parametrize(
    "name", ["g0002-r00000-0.safetensors", "../g0003-x", "g0003-a/b", "g0003-", "manifest.json", "g0003-a\nb"]
)
def test_file_of_another_generation_or_folder_is_refused(name):
    with pytest.raises(IntegrityError):
        manifest(files=manifest().files | {name: entry(b"")})


def test_manifest_without_index_is_refused():
    with pytest.raises(IntegrityError, match=r"index\.json is not listed"):
        manifest(files={"g0003-state.json": entry(b"")})


@pytest.mark.parametrize(
    "changes",
    [
        {"size_bytes": -1, "blocks": ()},
        {"size_bytes": BLOCK_BYTES + 1},
        {"size_bytes": 0},
        {"blocks": ("A" * 64,)},
        {"blocks": ("0",)},
    ],
)
def test_impossible_file_entries_are_refused(changes):
    with pytest.raises(IntegrityError):
        replace(entry(b"x"), **changes)


def test_listing_shows_newest_first_and_only_folders_with_a_manifest(store):
    for step in (5, 100, 20):
        store.put(f"p/step-{step:08d}/manifest.json", b"")
    store.put("p/step-00000200/g0001-index.json", b"")
    store.put("p/step-300/manifest.json", b"")
    store.put("p/step-00000001/deep/manifest.json", b"")
    assert [(each.step, each.prefix) for each in list_checkpoints(store, "p")] == [
        (100, "p/step-00000100"), (20, "p/step-00000020"), (5, "p/step-00000005"),
    ]  # fmt: skip


def test_manifest_moved_to_another_step_is_refused(store):
    store.put("p/step-00000008/manifest.json", sign_manifest(manifest(), KEY))
    with pytest.raises(RefusedCheckpoint, match="written for step 7"):
        read_manifest(store, "p/step-00000008", KEY)


def test_sizes_are_compared_by_name(store):
    for name in ("index.json", "state.json"):
        store.put(f"p/g0003-{name}", name.encode())
    with pytest.raises(RefusedCheckpoint, match=r"r00000-0\.safetensors.*no such file"):
        check_sizes(store, "p", manifest())
    store.put("p/g0003-r00000-0.safetensors", b"short")
    with pytest.raises(RefusedCheckpoint, match=r"r00000-0\.safetensors: wanted 20 bytes, found 5"):
        check_sizes(store, "p", manifest())
