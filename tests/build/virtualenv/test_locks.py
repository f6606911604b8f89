"""Locks of every kind become the same hashed requirements; an entry without version and hash is refused by name."""

import hashlib

import pytest
from tests.build.virtualenv.conftest import EGGS, SPAM
from tests.build.wheels import lock_of
from tests.line import repositories

from gangline.build.virtualenv import read_commit_lock
from gangline.build.virtualenv.locks import missing_index
from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.spec.config.line import EnvTable
from gangline.spec.config.lock import read_pylock

HASH = {name: hashlib.sha256(data).hexdigest() for name, data in (SPAM, EGGS)}
PYLOCK = f"""\
lock-version = "1.0"
requires-python = ">=3.11"
created-by = "somebody"
[[packages]]
name = "spam"
version = "1.0"
wheels = [{{name = "{SPAM[0]}", url = "https://elsewhere.example/{SPAM[0]}", hashes = {{sha256 = "{HASH[SPAM[0]]}"}}}}]
[[packages]]
name = "eggs"
version = "2.0"
marker = "sys_platform == 'nowhere'"
wheels = [{{name = "{EGGS[0]}", url = "https://elsewhere.example/{EGGS[0]}", hashes = {{sha256 = "{HASH[EGGS[0]]}"}}}}]
"""
PROJECT = """\
[project]
name = "ours"
version = "1"
requires-python = ">=3.11"
dependencies = ["spam"]
optional-dependencies = {more = ["eggs"]}
[tool.uv]
cache-dir = "/tmp/gangline-cache-of-a-stranger"
"""
UV_LOCK = f"""\
version = 1
revision = 2
requires-python = ">=3.11"

[[package]]
name = "ours"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "spam" }}]

[package.optional-dependencies]
more = [{{ name = "eggs" }}]

[package.metadata]
requires-dist = [{{ name = "spam" }}, {{ name = "eggs", marker = "extra == 'more'" }}]
provides-extras = ["more"]

[[package]]
name = "spam"
version = "1.0"
source = {{ registry = "https://elsewhere.example/simple" }}
wheels = [{{ url = "https://elsewhere.example/{SPAM[0]}", hash = "sha256:{HASH[SPAM[0]]}", size = 10 }}]

[[package]]
name = "eggs"
version = "2.0"
source = {{ registry = "https://elsewhere.example/simple" }}
wheels = [{{ url = "https://elsewhere.example/{EGGS[0]}", hash = "sha256:{HASH[EGGS[0]]}", size = 10 }}]
"""


def test_a_pylock_is_installed_by_hash_from_the_site_s_indexes(bench):
    lock = bench.lock({"pylock.toml": PYLOCK})
    assert lock.requires_python == ">=3.11"
    environment = bench.make(lock)
    assert environment.manifest.packages["spam"] == "1.0"
    assert "eggs" not in environment.manifest.packages, "its condition does not hold here"


def test_a_uv_lock_is_what_uv_selects_of_it_without_the_project(bench):
    files = {"uv.lock": UV_LOCK, "pyproject.toml": PROJECT}
    assert [pin.name for pin in bench.lock(files).pins] == ["spam"]
    lock = bench.lock(files, extras=("more",))
    assert sorted(pin.name for pin in lock.pins) == ["eggs", "spam"]
    assert bench.make(lock).manifest.packages.keys() >= {"spam", "eggs"}
    below = {"sub/uv.lock": UV_LOCK, "sub/pyproject.toml": PROJECT, "pyproject.toml": "no toml"}
    assert bench.lock(below).requirements == bench.lock(files).requirements


def test_the_same_packages_are_the_same_environment_whatever_the_lock_is_called(bench):
    by_uv, plain = bench.lock({"uv.lock": UV_LOCK, "pyproject.toml": PROJECT}), lock_of(SPAM)
    assert [(pin.name, pin.version, pin.sha256) for pin in by_uv.pins] == [
        (pin.name, pin.version, pin.sha256) for pin in bench.lock({"requirements.txt": plain.decode()}).pins
    ]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"uv.lock": UV_LOCK}, "wanted a pyproject.toml next to uv.lock"),
        ({"uv.lock": "version = 7\n", "pyproject.toml": PROJECT}, "version 1 of its format"),
        ({"uv.lock": "no = toml = at all", "pyproject.toml": PROJECT}, "a lock in TOML"),
        ({"pylock.toml": PYLOCK.replace('"1.0"', '"9.0"', 1)}, "version 1 of its format"),
    ],
)
def test_a_lock_that_does_not_read_is_refused_by_name(bench, files, said):
    with pytest.raises(ConfigError, match=said):
        bench.lock(files)


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ('name = "ham"\nversion = "1"\nsdist = {name = "ham-1.tar.gz"}', "'ham' without a wheel"),
        ('name = "ham"\nversion = "1"\nvcs = {type = "git", url = "https://x/y"}', "'ham' from a vcs"),
        ('name = "ham"\nversion = "1"\nwheels = [{name = "ham.whl"}]', "with a --hash=sha256:"),
        ('name = "ham"\nversion = "1 --index-url=https://x"\nwheels = [{hashes = {sha256 = "0"}}]', "NAME==VERSION"),
        ('name = "ham"\nversion = "1\\nspam @ https://x"\nwheels = [{hashes = {sha256 = "0"}}]', "NAME==VERSION"),
        ("name = 3", "a package called 3"),
    ],
)
def test_a_package_of_a_pylock_that_is_not_a_wheel_by_hash_is_refused(package, said):
    with pytest.raises(ConfigError, match=said):
        read_pylock(f'lock-version = "1.0"\n[[packages]]\n{package}\n'.encode(), file="pylock.toml")


def test_a_lock_that_is_not_committed_is_named(bench):
    repository = Repository.at(repositories.make_repository(bench.folder / "without", {"a.py": ""}))
    with pytest.raises(ConfigError, match=r"wanted gone\.txt in the commit, found none; git add it"):
        read_commit_lock(repository, repository.tree("HEAD"), EnvTable(lock="gone.txt"))


OF_AN_INDEX = UV_LOCK.replace(
    'version = "1.0"\nsource = { registry = "https://elsewhere.example/simple" }',
    'version = "1.0+cpu"\nsource = { registry = "https://me:word@elsewhere.example/whl/cpu/" }',
).replace(SPAM[0], SPAM[0].replace("1.0", "1.0+cpu"))
INDEX = "https://elsewhere.example/whl/cpu/"


def test_a_package_of_an_index_that_the_site_lacks_names_index_and_key(bench):
    lock = bench.lock({"uv.lock": OF_AN_INDEX, "pyproject.toml": PROJECT})
    with pytest.raises(ConfigError) as refused:
        bench.make(lock)
    assert str(refused.value) == (
        f"uv.lock: spam 1.0+cpu comes from an index of its own ({INDEX} in uv.lock), which this site does not have:"
        f' in site.toml [index.cpu] url = "{INDEX}"'
    )


def test_where_the_site_has_the_index_or_the_public_one_the_words_are_those_of_uv(bench):
    failure = "there is no version of spam==1.0+cpu"
    lock = bench.lock({"uv.lock": OF_AN_INDEX, "pyproject.toml": PROJECT})
    assert missing_index(lock, failure, known=f"cpu={INDEX.rstrip('/')}") == ""
    assert missing_index(lock, "No space left on device", known="") == ""
    public = UV_LOCK.replace("https://elsewhere.example/simple", "https://pypi.org/simple")
    lock = bench.lock({"uv.lock": public, "pyproject.toml": PROJECT})
    assert missing_index(lock, "there is no version of spam==1.0", known="") == ""


def test_a_build_of_requirements_that_name_no_index_is_said_to_have_one(bench):
    lock = bench.lock({"requirements.txt": f"spam==1.0+cpu --hash=sha256:{'a' * 64}\n"})
    found = missing_index(lock, "there is no version of spam==1.0+cpu", known="")
    assert found.startswith("requirements.txt: spam 1.0+cpu comes from an index of its own, which this site does not")
    assert found.endswith('[index.NAME] url = "..."')
