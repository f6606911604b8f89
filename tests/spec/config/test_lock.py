"""Locks of packages: what is refused by line, and that what passes says the same to pip."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from gangline.errors import ConfigError
from gangline.spec.config.load import load_line_text
from gangline.spec.config.lock import MOST_BYTES, lock_indexes, read_lock

HASH = f"--hash=sha256:{'0' * 64}"
OTHER = f"--hash=sha256:{'a1' * 32}"
LINE = "project = { name = 'a', task = 'm:C' }\ntrain = { steps = 1, global_batch = 1 }\nenv = { lock = 'a.lock' }\n"

GOOD = {
    f"spam==1.0 {HASH}": ("spam", "1.0"),
    f"Spam_Egg.s[a,b-c]==1!2.0rc1.post2.dev3+cu12.4 {HASH} {OTHER}": ("spam-egg-s", "1!2.0rc1.post2.dev3+cu12.4"),
    f"# about\n\nspam==1 \\\n    {HASH} \\\n    {OTHER}\n    # via eggs\n": ("spam", "1"),
    f"spam==1; python_version >= '3.11' and (sys_platform == \"linux\")  {HASH}  # via eggs": ("spam", "1"),
    f"spam==1 {HASH}\r\n": ("spam", "1"),
    f"torch==2.3.0a0+6a974be.nv23.11 {HASH}": ("torch", "2.3.0a0+6a974be.nv23.11"),
}
BAD = [
    "spam==1", f"spam {HASH}", f"spam>=1 {HASH}", f"spam==1.* {HASH}", f"spam===1 {HASH}", f"spam==1,>0 {HASH}",
    f"spam~=1.0 {HASH}", f"spam (==1) {HASH}", f"spam == 1 {HASH}", f"spam==one {HASH}", f"spam==1. {HASH}",
    f"evil @ http://h/x.tar.gz#x==1 {HASH}", f"evil @ git+https://h/x@main#==1 {HASH}", f"evil@file:///x#==1 {HASH}",
    f"http://h/x.whl#egg=x==1 {HASH}", f"git+ssh://h/x#egg=x==1 {HASH}", f"./x==1 {HASH}", f"/x==1 {HASH}",
    f"x.whl {HASH}", f"evil==1+a.zip {HASH}", f"evil==1+a.tar.gz {HASH}", f"evil==1+a.whl ; os_name=='posix' {HASH}",
    "-e .", "-r other.lock", "-c other.lock", "--index-url https://h", f"--find-links /x\nspam==1 {HASH}", HASH,
    "--hash=sha256:==", f"spam==1 {HASH} --config-settings=a=b", f"spam==1 {HASH} --global-option=x",
    f"-espam==1 {HASH}", "spam==1 --hash=sha512:" + "0" * 128, "spam==1 --hash=md5:" + "0" * 32,
    "spam==1 --hash sha256:" + "0" * 64,
    f"spam==1 {HASH}0", "spam==1 --hash=sha256:" + "A" * 64, f"spam==1 #{HASH}", f"spam==1 # {HASH}", f"spam==1#{HASH}",
    f"spam==${{VERSION}} {HASH}", f"${{SPAM}}==1 {HASH}", f"spam==1 ${{X}} {HASH}", f"sp\xe4m==1 {HASH}",
    f"ѕpam==1 {HASH}", f"spam=\uff1d1 {HASH}", f"# \xfc\nspam==1 {HASH}", f"\ufeffspam==1 {HASH}",
    f"# -*- coding: utf-7 -*-\nspam==1 {HASH}", f"#\n# vim: set fileencoding=utf-16\nspam==1 {HASH}",
    f"# a\x0cevil @ http://h/x\nspam==1 {HASH}", f"# a\x85evil==1\nspam==1 {HASH}", f"# a\rspam==2\nspam==1 {HASH}",
    f"# a\u2028spam==2\nspam==1 {HASH}", f"# a\x1cspam==2\nspam==1 {HASH}", f"spam==1 \\\n\t{HASH}", f"spam==1\t{HASH}",
    f"spam==1\\\n{HASH}", f"spam==1 {HASH} \\", f"spam==1 {HASH} \\\\\n{OTHER}", f"spam==1 {HASH} # \\\neggs==2 {HASH}",
    f"spam==1 \\\n# via eggs\n{HASH}", f"spam==1 \\\n\n{HASH}", f"spam==1 ; {HASH}", f"spam==1 ; what {HASH}",
    f"spam==1 ; os_name == ' -e x' {HASH}", f"spam==1 ; os_name == '-' ; x {HASH}", f"spam==1 ; {'(' * 400} {HASH}",
    f"spam==1 {HASH}\nspam==2 {HASH}", f"spam==1 {HASH}\nSp.am==1 {HASH}\nsp-am==2 {HASH}",
    f"spam==1 {HASH}\nspam==2 ; os_name == 'nt' {HASH}", f"spam==2 ; os_name == 'nt' {HASH}\nspam==1 {HASH}",
    f"spam==1;os_name=='nt' {HASH}\nspam==2;os_name=='nt' {HASH}", f"[a]==1 {HASH}", f"spam[]==1 {HASH}", "==", "@",
    f"spam[--e]==1 {HASH}", f"spam[a,b-]==1 {HASH}",
    f"spam[a]]==1 {HASH}", f"spam==1[a] {HASH}", f"spam==1 eggs==2 {HASH}", f"{HASH} spam==1",
]  # fmt: skip


@pytest.mark.parametrize(("text", "found"), GOOD.items())
def test_packages_by_version_and_hash_are_read(text, found):
    assert [(pin.name, pin.version) for pin in read_lock(text.encode(), file="a.lock")] == [found]


def test_what_a_lock_says_of_a_package_is_kept():
    text = f"# about\nspam==1 ; os_name == 'nt' \\\n  {HASH} \\\n  {OTHER}\nspam==2 ; os_name != 'nt' {OTHER}\n"
    first, second = read_lock(text.encode(), file="a.lock")
    assert (first.marker, first.sha256, first.line) == ("os_name == 'nt'", ("0" * 64, "a1" * 32), 2)
    assert (second.version, second.line) == ("2", 5)


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused_by_line_before_a_run_and_at_a_build_alike(text):
    with pytest.raises(ConfigError, match=r"^a\.lock:\d+: wanted "):
        read_lock(text.encode(), file="a.lock")
    with pytest.raises(ConfigError, match=r"^line\.toml: env\.lock: wanted .* at a\.lock:\d+; ") as refused:
        load_line_text(LINE, file="line.toml", reader={"a.lock": text.encode()}.get)
    assert str(refused.value).isprintable()


def test_the_line_that_is_wrong_is_named_and_its_password_is_not():
    text = f"spam==1 \\\n  {HASH}\n\nevil @ https://me:secret@h/x.whl {HASH}\n"
    with pytest.raises(ConfigError, match=r"a\.lock:4: .*found 'evil' from an address") as refused:
        read_lock(text.encode(), file="a.lock")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["poetry", "pdm", "pipenv"])
def test_a_lock_of_another_tool_is_refused_with_the_command_that_exports_it(name):
    file = "Pipfile.lock" if name == "pipenv" else f"{name}.lock"
    with pytest.raises(ConfigError, match=f"{name} .*requirements.txt writes that"):
        read_lock(b"[metadata]\n", file=f"service/{file}")


def test_a_lock_is_bounded_and_read_in_a_time_that_grows_with_its_size():
    with pytest.raises(ConfigError, match="at most"):
        read_lock(b" " * (MOST_BYTES + 1), file="a.lock")
    for text in ("a" * MOST_BYTES, "a==1 ;" + " (" * 1000, "a \\\n" * 100_000 + "b", "a" + " " * (MOST_BYTES - 1)):
        with pytest.raises(ConfigError):
            read_lock(text.encode(), file="a.lock")


PIECES = [
    "spam", "eggs", "==", "1.0", "2", "1+a.zip", "===", ">=", ".*", " ", "  ", "\n", "\\\n", " \\\n    ", "\r\n", "\t",
    "#", " # via x", ";", " ; ", "os_name == 'posix'", "python_version < '4'", "'", '"', "[a]", "[", "]", ",", "@",
    " @ ", "http://h/x.tar.gz", "git+", "file:///x", "./x", ".whl", "-e ", "-r x", "--", "--hash=", "sha256:",
    "${EVIL}",
    "\x0c", "\x85", "\u2028", "\xa0", "\ufeff", "\\", "# coding: utf-7\n", "+AAo-", HASH, OTHER, f" {HASH}\n", "==1 ",
    "spam==1 ",
]  # fmt: skip
MARKERS = ["", " ; os_name == 'nt'", "; python_version >= '3'"]
HASHES = [HASH, f"\\\n  {OTHER}", f"{HASH} \\\n    {OTHER}\n    # via x"]


@st.composite
def locks(draw):
    """A lock that holds, with up to two pieces put in anywhere."""
    names = draw(st.lists(st.sampled_from(["a", "B.b", "c_c", "d[e]", "f[g,h]"]), unique=True, max_size=4))
    text = "".join(
        f"{name}=={draw(st.sampled_from(['1', '2.0+cpu', '1!3rc1']))}{draw(st.sampled_from(MARKERS))}"
        f" {draw(st.sampled_from(HASHES))}\n" for name in names
    )  # fmt: skip
    for piece in draw(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=2)), max_size=2)):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + piece + text[at:]
    return text


@settings(max_examples=400)
@given(text=locks())
def test_what_passes_is_to_pip_that_name_version_and_hashes_and_no_address(text):
    try:
        pins = read_lock(text.encode("utf-8", "surrogatepass"), file="a.lock")
    except ConfigError:
        return
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVIL", "@ http://h/x.tar.gz")
        patch.chdir(folder)
        seen = as_pip_reads_it(Path(folder, "a.lock"), text)
    assert [(name, version, hashes) for name, version, _, hashes in seen] == [
        (pin.name, f"=={pin.version}", {"sha256": list(pin.sha256)}) for pin in pins
    ]
    assert [marker and str(marker) for _, _, marker, _ in seen] == [
        pin.marker and str(Marker(pin.marker)) for pin in pins
    ]


def as_pip_reads_it(file, text):
    """Name, specifier, marker and hashes of each requirement, by pip itself."""
    from pip._internal.req.constructors import install_req_from_parsed_requirement
    from pip._internal.req.req_file import parse_requirements

    file.write_bytes(text.encode())
    for name in ("a.zip", "1+a.zip", "spam==1+a.zip", "eggs==1+a.zip"):  # what pip could take for the package
        file.with_name(name).touch()
    seen = []
    for parsed in parse_requirements(str(file), session=None):
        found = install_req_from_parsed_requirement(parsed)
        assert found.link is None, found
        assert not found.editable, found
        specifier = next(str(each) for each in found.req.specifier)
        seen.append((canonicalize_name(found.name), specifier, found.markers, found.hash_options))
    return seen


def test_pip_takes_a_version_that_ends_like_an_archive_for_a_file(tmp_path, monkeypatch):
    """Why `x==1+a.zip` is refused, valid as it is."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"1%2Ba\.zip"):
        as_pip_reads_it(tmp_path / "a.lock", f"spam==1+a.zip {HASH}\n")


def test_the_locks_of_this_repository_pass():
    folder = Path(__file__).parents[3] / "requirements"
    assert all(read_lock(file.read_bytes(), file=file.name) for file in folder.glob("*.txt"))
    assert list(folder.glob("*.txt"))


@pytest.mark.parametrize(
    ("line", "works"),
    [
        ("--index-url https://me:word@a.example/simple", r'delete the line: .* site.toml \[index.NAME\] url = "..."'),
        ("--extra-index-url=https://a.example/simple", r"delete the line: wheels come from the indexes of the site"),
        ("-i https://a.example/simple", "only with --emit-index-url"),
        ("--find-links /srv/wheels", "environments.find_links of site.toml"),
        ("-e .", "the code of the commit is on the path of Python"),
        ("-r base.txt", "uv pip compile --generate-hashes a.txt -o requirements.lock writes one file of both"),
        ("--no-binary :all:", "delete the line, it has no effect here"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_line_of_options_is_named_with_what_works_instead(line, works, ending):
    with pytest.raises(ConfigError, match=works) as refused:
        read_lock(f"{line}{ending}spam==1 {HASH}{ending}".encode(), file="a.txt")
    assert "me:word" not in str(refused.value)
    assert "uv pip compile --generate-hashes writes that" not in str(refused.value)


def test_indexes_of_packages_are_read_without_credentials():
    lock = """
    version = 1
    package = [
        {name = "Torch", version = "2.9.1+cpu", source = {registry = "https://me:word@a.example/whl/cpu?key=1"}},
        {name = "local", version = "1", source = {registry = "../wheels"}},
        {name = "git", version = "1", source = {git = "https://a.example/x"}}, {name = 3, version = "1"},
    ]
    """
    assert lock_indexes(lock.encode(), file="uv.lock") == {("torch", "2.9.1+cpu"): "https://a.example/whl/cpu"}
    pylock = 'lock-version = "1.0"\npackages = [{name = "a", version = "1", index = "https://a.example/simple"}]\n'
    assert lock_indexes(pylock.encode(), file="pylock.toml") == {("a", "1"): "https://a.example/simple"}
