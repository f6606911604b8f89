"""The layout of the source tree: names that exist once, sizes, docstrings, where the environment is read."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from tests.source import FILES, SOURCE, nodes, trees

ROOT = Path(__file__).resolve().parents[1]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MOST_LINES, MOST_FUNCTION_LINES = 450, 60

SHARED_CLASS_NAMES = {"GanglineCallback"}
"""Public classes that each framework's users know by one name."""

ENVIRONMENT_READERS = {
    "keeper/ipc/environment.py": "the variables between launcher, keeper and rank, of this process by default",
    "keeper/main.py": "entry point",
    "keeper/pod.py": "entry point",
    "keeper/transfer/one_shot_pod.py": "entry point",
    "train/rank/child.py": "entry point",
    "train/rank/warm_parent.py": "entry point of forked ranks",
    "train/startup/sitecustomize.py": "entry point of every Python of a rank",
    "train/account/event_log.py": "conceals the secrets that a rank was given",
    "kfp/run_stage.py": "entry point of a pipeline task",
    "infer/__main__.py": "entry point of a server",
    "flare/coordinator.py": "entry point of the process next to a gang, and what NVFlare's server inherits",
    "flare/pod.py": "entry point of a container",
    "git/command.py": "what git inherits",
    "launch/sandbox/environment.py": "what model code inherits",
    "launch/slurm/lives.py": "entry point of the script of a job",
    "launch/slurm/node.py": "entry point on each server of a job",
    "storage/site_paths.py": "GANGLINE_CACHE of the machine, whichever user a run belongs to",
}
"""Files outside `cli` that read the environment of their process, and why."""
MOST_READS = 29
"""Places that read it: entry points, which hand it on."""

# fmt: off
RETIRED = [
    "answers", "anew", "asked", "birth", "board", "closing", "course", "desk", "door", "errand", "finals",
    "glance", "given", "gone", "heard", "held", "intake", "kept", "later", "leash", "listeners", "looked",
    "marks", "marked", "moments", "naming", "news", "outcome", "outer", "outside", "parting", "patience",
    "places", "postman", "pump", "question", "ran", "roll", "saying", "second", "standing", "strangers",
    "strike", "struck", "tallies", "telling", "teller", "tend", "thin", "told", "trouble", "wanted", "wishes",
    "word", "words",
]
# fmt: on
"""Former names of modules: each needed its docstring to be understood."""
RETIRED_EVERYWHERE = {
    "anew", "birth", "desk", "errand", "glance", "intake", "leash", "parting", "postman", "strangers", "tallies",
    "teller", "wishes",
}  # fmt: skip
"""Of them, and of former functions, those that mean nothing in the field: part of no name at all."""

NAME_FIELDS = {ast.Name: "id", ast.arg: "arg", ast.Attribute: "attr", ast.alias: "asname"} | dict.fromkeys(
    (*FUNCTIONS, ast.ClassDef), "name"
)
"""Where a node has the name that it gives or uses."""

HIDES_THE_ACTOR = re.compile(r"\b(?:[Aa]new|[Bb]eside|[Hh]ence|[Ll]est|[Nn]obody|[Tt]old|[Ww]hoever)\b")
"""Words that leave open who acts, in docstrings and messages."""


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cache
def parents() -> dict[str, list[ast.expr]]:
    """Method to the bases of its class."""
    return {
        f"{node.name}.{part.name}": node.bases
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, FUNCTIONS)
    }


def public_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{prefix}{node.name}.")


def test_a_public_class_name_exists_once():
    names = Counter(node.name for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef))
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert twice - SHARED_CLASS_NAMES == set()


def test_no_module_has_a_retired_name():
    names = {part for path in FILES for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert names & set(RETIRED) == set()


def test_no_name_has_a_retired_part():
    found = {
        f"{relative(path)}:{node.lineno} {name}"
        for path, each in nodes().items()
        for node in each
        if (field := NAME_FIELDS.get(type(node))) and (name := getattr(node, field))
        if RETIRED_EVERYWHERE & set(re.split(r"_|(?<=[a-z])(?=[A-Z])", name))
    }
    assert found == set()


def test_texts_are_free_of_words_that_hide_the_actor():
    found = {
        f"{relative(path)}:{node.lineno} {words[0]}"
        for path, each in nodes().items()
        for node in each
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        if (words := HIDES_THE_ACTOR.findall(node.value))
    }
    assert found == set()


def test_pages_and_names_of_tests_are_free_of_them_too():
    pages = [each for name in ("docs", "examples") for each in (ROOT / name).rglob("*.md") if each.parent.name != "adr"]
    in_pages = {
        f"{page.relative_to(ROOT)} {words[0]}"
        for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages)
        if (words := HIDES_THE_ACTOR.findall(re.sub(r"(```|`).*?\1|[/\"]\S+", "", page.read_text(), flags=re.DOTALL)))
    }
    in_names = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
        if HIDES_THE_ACTOR.search(name.replace("_", " "))
    }
    assert in_pages | in_names == set()


def test_the_map_names_every_room_once():
    page = (ROOT / "docs/contributing/rooms.md").read_text()
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ((?:`\w+`(?: · )?)+) \|", page, re.MULTILINE)))
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}
    assert sorted(named) == sorted(rooms | modules)


def test_files_stay_within_their_limit():
    lengths = {relative(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_functions_stay_within_their_limit():
    found = {
        f"{relative(path)}:{node.name}": lines
        for path, each in nodes().items()
        for node in each
        if isinstance(node, FUNCTIONS) and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_FUNCTION_LINES
    }
    assert found == {}


def documented_interfaces() -> dict[str, set[str]]:
    """Methods that a class documents, by class, once for every implementation; "Protocol": those of any Protocol."""
    classes = [node for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        each.name: {part.name for part in each.body if isinstance(part, FUNCTIONS) and ast.get_docstring(part)}
        for each in classes
    } | {
        "Protocol": {
            part.name
            for each in classes
            if any("Protocol" in ast.unparse(base) for base in each.bases)
            for part in each.body
            if isinstance(part, FUNCTIONS) and ast.get_docstring(part)
        }
    }


def test_everything_public_has_a_docstring():
    interfaces = documented_interfaces()
    missing = []
    for path, tree in trees().items():
        for name, node in [*public_definitions(tree.body), ("module", tree)]:
            method = name.rpartition(".")[2] if isinstance(node, FUNCTIONS) and "." in name else ""
            implements = method in interfaces["Protocol"] or any(
                method in interfaces.get(ast.unparse(base).split("[")[0], ()) for base in parents().get(name, ())
            )
            if not ast.get_docstring(node) and not implements:
                missing.append(f"{relative(path)}:{name}")
    assert missing == []


def environment_reads(nodes_of_file: Iterable[ast.AST]) -> int:
    """Mentions of the environment of the process, but for those that set a variable."""
    mentions = {
        node
        for node in nodes_of_file
        if isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv", "environb")
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    }
    changes = {
        node.value
        for node in nodes_of_file
        if isinstance(node, ast.Attribute) and node.attr in ("setdefault", "update", "clear")
    }
    return len(mentions - changes)


def test_the_environment_is_read_at_entry_points():
    reads = {relative(path): count for path, each in nodes().items() if (count := environment_reads(each))}
    elsewhere = {name for name in reads if not name.startswith("cli/") and name not in ENVIRONMENT_READERS}
    assert elsewhere == set()
    assert ENVIRONMENT_READERS.keys() <= reads.keys()
    assert sum(reads.values()) <= MOST_READS, reads


def test_pytest_enters_every_folder_of_tests(pytestconfig):
    left_out = pytestconfig.getini("norecursedirs")
    names = {part for path in (ROOT / "tests").rglob("test_*.py") for part in path.relative_to(ROOT).parts[:-1]}
    assert not [name for name in names if any(fnmatch(name, pattern) for pattern in left_out)]


@pytest.mark.parametrize("word", re.findall(r"^\| (\w+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)[1:])
def test_a_word_of_the_glossary_is_used(word):
    pages = [ROOT / "README.md", *(ROOT / "docs/guides").glob("*.md")]
    assert any(re.search(rf"\b{word}s?\b", page.read_text(), re.IGNORECASE) for page in pages)


@cache
def defined_names(module: str) -> set[str] | None:
    """Names that `from module import` gives, submodules among them; None: there is no such module."""
    path = SOURCE.parent.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return None
    names = {each.stem for each in path.glob("*")} if path.is_dir() else set()
    for node in ast.walk(trees()[file]):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names | {
        each.value for each in ast.walk(trees()[file]) if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


@pytest.mark.parametrize("folder", ["benchmarks", "components", "examples", "pipelines", "tools"])
def test_programs_outside_the_package_import_what_exists(folder):
    missing = [
        f"{path.relative_to(ROOT)}: from {node.module} import {alias.name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gangline"
        for alias in node.names
        if alias.name not in (defined_names(node.module) or ())
    ]
    assert missing == []
