"""A run stands for one line of one commit: lines of one name, clones that lack commits, objects that were replaced."""

import shutil
from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.errors import ConfigError, IntegrityError
from gangline.git.repository import Repository
from gangline.spec.config.site import StoreTable


@pytest.fixture
def workspace(workspace, tmp_path):
    workspace.site = replace(workspace.site, store=StoreTable(url=f"file:{tmp_path / 'store'}"))
    return workspace


@pytest.fixture
def both(workspace):
    """Workspaces of two lines in folders of one repository, alike in all but what their program says."""
    files = {"line.toml": repositories.LINE, "answer.py": repositories.PROGRAM}
    for folder in ("a", "b"):
        repositories.commit(workspace.repo, {f"{folder}/{name}": text for name, text in files.items()})
    repositories.commit(workspace.repo, {"b/answer.py": repositories.PROGRAM + "# of b\n"})
    return [replace(workspace, repo=workspace.repo / folder) for folder in ("a", "b")]


def name_given_to_b(a):
    """The default branch takes the line out of a, so that the name is that of b from now on."""
    repositories.git(a.repo.parent, "rm", "--quiet", "a/line.toml")
    return repositories.commit(a.repo.parent, {"x": "1"})


def test_the_run_of_another_line_with_the_same_name_is_not_found_for_this_one(both):
    a, b = both
    assert a.run(until="plan").run.id
    of_both = repositories.git(a.repo.parent, "rev-parse", "HEAD")
    name_given_to_b(a)
    with pytest.raises(
        ConfigError, match="belongs to another line named 'cheap', in another folder than b/; give each line"
    ):
        b.run(until="plan", commit=of_both)


def test_the_run_of_another_line_with_the_same_name_is_not_the_base(both):
    a, b = both
    assert a.run().run.verdict == "passed"
    name_given_to_b(a)
    assert b.run(until="plan").commit.base is None


def test_a_line_whose_folder_was_moved_keeps_its_base(both):
    a, _ = both
    first = a.run()
    repositories.git(a.repo.parent, "mv", "a", "c")
    repositories.commit(a.repo.parent, {"x": "1"})
    assert replace(a, repo=a.repo.parent / "c").run(until="plan").commit.base.run == first.run.id


def test_a_record_whose_tree_was_changed_is_called_changed_not_another_line(workspace):
    record = workspace.run(until="plan")
    changed = replace(record, commit=replace(record.commit, tree="0" * 40))
    workspace.store.put(f"{record.prefix}/record.json", changed.to_json())
    with pytest.raises(IntegrityError, match="seal"):
        workspace.run(until="plan")


SHALLOW = "no base was found, but this clone is shallow and lacks earlier commits"


def test_a_shallow_clone_says_that_it_may_lack_the_base(workspace, tmp_path):
    repositories.commit(workspace.repo, {"x": "1"})
    clone = tmp_path / "clone"
    repositories.git(workspace.repo, "clone", "--quiet", "--depth=1", f"file://{workspace.repo}", str(clone))
    workspace.repo = clone
    assert [event.text[: len(SHALLOW)] for event in workspace.run(until="plan").events if event.kind == "rules"] == [
        SHALLOW
    ]
    repositories.git(clone, "fetch", "--quiet", "--unshallow")
    assert not Repository.at(clone).is_shallow


def test_a_file_that_git_replaces_is_that_of_the_commit(workspace, tmp_path):
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + "print('of the commit')\n"})
    other = tmp_path / "other.py"
    other.write_text(repositories.PROGRAM + "print('of another')\n")
    blob = repositories.git(workspace.repo, "hash-object", "-w", str(other))
    repositories.git(workspace.repo, "replace", repositories.git(workspace.repo, "rev-parse", "HEAD:answer.py"), blob)
    shutil.rmtree(workspace.repo / ".gangline", ignore_errors=True)
    record = workspace.run()
    [log] = (workspace.repo / ".gangline" / "gangs" / record.run.id).rglob("0.log")
    assert "of the commit" in log.read_text()
    assert "of another" not in log.read_text()
