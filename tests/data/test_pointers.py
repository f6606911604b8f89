"""Files of DVC as two of its versions wrote them, and files that only look like those."""

import pytest
from tests.data.recorded import RECORDINGS, VERSIONS

from gangline.data.pointers import MOST_DVC_FILE_BYTES, read_dvc_file, read_lock
from gangline.errors import ConfigError

KIND = {"v2": "md5-dos2unix", "v3": "md5"}
MD5 = "3be95a7c86db05bca7ed7ad848fffa75"


def recorded(version, path):
    return (RECORDINGS / version / "repo" / path).read_bytes()


def outputs(text, path="data/a.csv.dvc"):
    return read_dvc_file(path, text.encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_and_a_folder_are_read_with_the_digest_of_their_version(version):
    (file,) = read_dvc_file("data/test.csv.dvc", recorded(version, "data/test.csv.dvc"))
    assert (file.path, file.digest, file.size_bytes, file.kind) == ("data/test.csv", MD5, 9, KIND[version])
    (folder,) = read_dvc_file("data/images.dvc", recorded(version, "data/images.dvc"))
    assert (folder.path, folder.is_folder, folder.num_files, folder.size_bytes) == ("data/images", True, 4, 74)
    assert folder.shown.endswith(".dir")


@pytest.mark.parametrize("version", VERSIONS)
def test_outputs_of_stages_are_those_of_the_lock_in_the_folders_of_their_stages(version):
    lock, stages = recorded(version, "dvc.lock"), recorded(version, "dvc.yaml")
    found = read_lock("dvc.lock", lock, stages)
    assert [(each.path, each.is_folder, each.is_output) for each in found] == [
        ("features", True, True), ("mean.txt", False, True)
    ]  # fmt: skip
    moved = stages.replace(b"    deps", b"    wdir: sub\n    deps")
    assert [each.path for each in read_lock("a/dvc.lock", lock, moved)] == ["a/sub/features", "a/sub/mean.txt"]


def test_locks_of_dvc_1_have_no_schema():
    text = f"prepare:\n  cmd: python a.py\n  outs:\n  - path: data/a.csv\n    md5: {MD5}\n"
    (found,) = read_lock("dvc.lock", text.encode(), None)
    assert (found.path, found.kind, found.size_bytes) == ("data/a.csv", "md5-dos2unix", None)


def test_folders_of_a_dvc_file_and_remotes_of_its_outputs_count():
    (found,) = outputs(f"wdir: ..\nouts:\n- md5: {MD5}\n  path: raw/a.csv\n  remote: docs\n  hash: md5\n")
    assert (found.path, found.remote) == ("raw/a.csv", "docs")


def test_what_git_holds_and_what_lies_in_buckets_is_no_pointer():
    assert outputs(f"outs:\n- md5: {MD5}\n  path: a\n  cache: false\n- path: s3://b/c\n  etag: x\n") == []


@pytest.mark.parametrize(("text", "why"), [
    (f"outs:\n- md5: {MD5}\n  path: ../../a\n", "inside the repository"),
    (f"outs:\n- md5: {MD5}\n  path: /etc/passwd\n", "inside the repository"),
    (f"wdir: ../../..\nouts:\n- md5: {MD5}\n  path: a\n", "inside the repository"),
    ("outs:\n- path: a\n", "wanted the md5 of data/a"),
    ("outs:\n- md5: ../../x\n  path: a\n", "wanted the md5 of data/a"),
    (f"outs:\n- md5: {MD5}\n  hash: blake3\n  path: a\n", "found hash blake3"),
    (f"outs:\n- md5: {MD5}\n  path: a\n  files:\n  - relpath: b\n", "version_aware"),
    ("- a\n", "a table of DVC"),
    ("outs: [", "found something else"),
    ("outs: !!python/object/apply:os.system [true]\n", "found a tag"),
    ("outs: !!binary aGk=\n", "found a tag"),
    ("[" * 5000, "found more than 20 levels"),
    ("? [a, b]\n: c\n", "found something else"),
    ("a: &a [x]\nouts: *a\n", "found an alias"),
    ("outs: [\n" + "#" * MOST_DVC_FILE_BYTES + "]\n", "at most 1 MB"),
])  # fmt: skip
def test_other_files_are_refused_with_their_name(text, why):
    with pytest.raises(ConfigError, match=r"data/a\.csv\.dvc") as refused:
        outputs(text)
    assert why in str(refused.value).replace("1.0 MB", "1 MB")


def test_aliases_that_would_fill_the_memory_are_refused_before_they_are_followed():
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    with pytest.raises(ConfigError, match="found an alias"):
        outputs(bomb)


@pytest.mark.parametrize("name", ["on", "no", "2026-11-29", "012", "1:20", "~", "null", "1_000"])
def test_a_name_that_yaml_could_take_for_something_else_is_a_name(name):
    """DVC writes YAML of 1.2, in which most of these need no quotation marks."""
    (found,) = outputs(f"outs:\n- path: {name}\n  md5: '00112233445566778899001122334455'\n")
    assert found.path == f"data/{name}"


def test_a_digest_of_decimal_digits_is_a_text():
    (found,) = outputs("outs:\n- path: a\n  md5: 00112233445566778899001122334455\n  size: 12\n  nfiles: 0x10\n")
    assert (found.digest, found.size_bytes, found.num_files) == ("00112233445566778899001122334455", 12, None)


def test_more_outputs_than_a_commit_may_have_are_refused_with_their_number(monkeypatch):
    monkeypatch.setattr("gangline.data.pointers.MOST_FILES", 3)
    outs = "".join(f"    - path: a{n}\n      md5: {MD5}\n" for n in range(2))
    stages = "".join(f"  s{n}:\n    outs:\n{outs}" for n in range(2))
    with pytest.raises(ConfigError, match=r"dvc\.lock: wanted at most 3 files .*, found 4"):
        read_lock("dvc.lock", f"stages:\n{stages}".encode(), None)
    with pytest.raises(ConfigError, match=r"data/a\.csv\.dvc: wanted at most 3 files .*, found 5"):
        outputs("outs:\n" + f"- {{path: a, md5: {MD5}}}\n" * 5)
