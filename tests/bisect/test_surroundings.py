"""Recorded values count if their run had the data and packages of now, as far as a commit does not decide them."""

from dataclasses import replace

import pytest
from tests.bisect.test_recorded_values import BASE, LAST, LINE
from tests.line.repositories import commit

from gangline.bisect.recorded_values import Surroundings, read_values, surroundings_now
from gangline.line.request.run_request import resolve_request
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.train.startup.contents import contents_of

RAN = RuntimeReport(python="3.11.7", packages={"numpy": "2.4.6", "Scikit_learn": "1.8"})
NOW = {"python": "3.11.7", "numpy": "2.4.6", "scikit-learn": "1.8", "torch": "3"}


def test_values_on_other_data_do_not_count_and_are_named():
    later = replace(LAST, since="2027-01-01T00:00:00Z")
    found = read_values([BASE], LINE, later, Surroundings(data="f" * 64))
    assert (found.values, found.left_out) == ({}, f"data {BASE.inputs.data[:8]}, now ffffffff")
    assert read_values([BASE], LINE, later, Surroundings(data=BASE.inputs.data)).values
    assert read_values([BASE], LINE, later, Surroundings()).values


@pytest.mark.parametrize(
    ("now", "other"),
    [
        ({}, ""),
        ({"numpy": "1.26.4"}, "numpy 2.4.6, now 1.26.4"),
        ({"scikit-learn": "1.9"}, "Scikit_learn 1.8, now 1.9"),
        ({"python": "3.12.1"}, "python 3.11.7, now 3.12.1"),
        ({"torch": "4"}, ""),  # nothing imported it
    ],
)
def test_values_with_other_packages_do_not_count_where_a_program_imported_them(now, other):
    reported = replace(BASE, ran=RAN, inputs=replace(BASE.inputs, image=None))
    assert Surroundings(versions=NOW | now).other_in(reported) == other
    assert not Surroundings(versions=NOW | now).other_in(replace(reported, ran=replace(RAN, foreign=("Python 3.13",))))


def test_values_of_runs_that_read_undeclared_files_count_as_long_as_these_are_the_same(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("1")
    read = UndeclaredRead(path=str(path), **contents_of(str(path))._asdict())
    reported = replace(BASE, ran=replace(RAN, reads=(read,), num_reads=1))
    later = replace(LAST, since="2027-01-01T00:00:00Z")
    assert read_values([reported], LINE, later, Surroundings()).values
    path.write_text("5")
    found = read_values([reported], LINE, later, Surroundings())
    assert (found.values, found.left_out) == ({}, f"{path}, undeclared and changed since")


def test_what_the_search_trained_itself_counts():
    since = replace(LAST, since=BASE.run.created)
    assert read_values([BASE], LINE, since, Surroundings(data="f" * 64)).values


def test_data_of_the_store_are_read_as_they_are_now_and_those_of_the_commit_are_its_own(workspace):
    commit(workspace.repo, {"a.txt": "x"})
    request = resolve_request(workspace.repo, commit=None, overrides=(), strategy=None)

    def now(*text):
        line = replace(request.line, data=replace(request.line.data, text=text))
        return surroundings_now(
            replace(request, line=line), workspace.site, workspace.store, environ=workspace.environ
        ).data

    assert now("repo:a.txt") == now() == ""
    workspace.store.put("data/b.txt", b"1")
    first = now("data/b.txt")
    workspace.store.put("data/b.txt", b"2")
    assert first != now("data/b.txt") != ""
    assert now("data/missing.txt") == ""
