"""Keys of environment images, and which locks and names they are made from."""

import hashlib
from dataclasses import replace

import pytest
from tests.build.wheels import lock_of, make_wheel

from gangline.build.builders.recipe import make_recipe, package_digest, package_members
from gangline.build.image_registry.reference import ImageReference, is_loopback
from gangline.build.images import locked_packages
from gangline.build.oci import Platform
from gangline.errors import ConfigError

BASE = f"registry.example/base@sha256:{'b' * 64}"
LOCK = lock_of(make_wheel("spam", "1.0"))
HASH = "--hash=sha256:" + "0" * 64


def recipe(**changes):
    return replace(make_recipe(LOCK, base=BASE, image="registry.example/env", platform=Platform()), **changes)


def test_the_key_depends_on_all_that_goes_in_and_on_nothing_else():
    standing = recipe()
    other = ImageReference.parse(BASE.replace("b" * 64, "c" * 64))
    changes = [{"lock": LOCK + b"\n"}, {"base": other}, {"platform": Platform("linux", "arm64")},
               {"dockerfile": b"FROM x"}, {"package": "0" * 64}]  # fmt: skip
    assert len({standing.key, *(recipe(**change).key for change in changes)}) == len(changes) + 1
    assert recipe(image=ImageReference.parse("elsewhere.example/env")).key == standing.key
    assert standing.tag == f"env-{standing.key[:12]}"


def test_gangline_goes_in_without_what_python_leaves_next_to_it():
    paths = [member.path for member in package_members("opt/gangline")]
    assert "opt/gangline/keeper/node_agent.py" in paths
    assert not [path for path in paths if "__pycache__" in path]
    assert len(package_digest()) == 64


@pytest.mark.parametrize("text", ["spam==1.0\n", "-e .\n", f"spam @ https://evil.example/spam.whl#==1 {HASH}\n"])
def test_a_lock_that_leaves_anything_open_makes_no_image(text):
    with pytest.raises(ConfigError, match=r"^a\.lock:1: wanted NAME==VERSION"):
        make_recipe(text.encode(), base=BASE, image="registry.example/env", file="a.lock")


def test_a_bill_of_a_lock_holds_what_this_platform_installs():
    other = f"eggs==2 ; sys_platform == 'win32' \\\n    {HASH}\n"
    text = f"# a comment\n{LOCK.decode()}{other}ham==3 ; python_version >= '3.11' {HASH}  # via spam\n"
    found = locked_packages(text.encode(), Platform())
    assert [(each.name, each.version) for each in found] == [("ham", "3"), ("spam", "1.0")]
    assert found[1].sha256 == (hashlib.sha256(make_wheel("spam", "1.0")[1]).hexdigest(),)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:5000/a", ("localhost:5000", "a", None, None)),
        ("registry.example/team/a_b.c-d:1.2", ("registry.example", "team/a_b.c-d", "1.2", None)),
        (f"r.example:443/a:t@sha256:{'0' * 64}", ("r.example:443", "a", "t", "sha256:" + "0" * 64)),
        ("[::1]:5000/a", ("[::1]:5000", "a", None, None)),
        ("registry:5000/a", ("registry:5000", "a", None, None)),
    ],
)
def test_references_are_read_into_their_parts_and_written_back(text, parts):
    found = ImageReference.parse(text)
    assert (found.host, found.repository, found.tag, found.digest) == parts
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    ["", "python", "python:3.11", "library/python", "r.example/A", "r.example/a//b", "r.example/a:", "r.example/../b",
     "r.example/a@sha256:abc", "https://r.example/a", "user:pw@r.example/a", "r.example/a b", "-r.example/a\n",
     "r.example/a@md5:" + "0" * 32, "r.example/" + "a" * 500],
)  # fmt: skip
def test_names_that_leave_anything_to_a_default_are_refused(text):
    with pytest.raises(ConfigError, match=r"docker\.io/library/python"):
        ImageReference.parse(text)


def test_a_base_without_a_digest_is_refused():
    with pytest.raises(ConfigError, match="by digest"):
        make_recipe(LOCK, base="registry.example/base:1", image="registry.example/env")


def test_only_this_machine_is_loopback():
    assert all(is_loopback(host) for host in ("localhost", "localhost:5000", "127.0.0.1:1", "127.8.8.8", "[::1]:5000"))
    others = ("localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "[2001:db8::1]:1", "", "0.0.0.0")
    assert not any(is_loopback(host) for host in others)
