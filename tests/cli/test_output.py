"""Where results go: stdout, or a file that may not be writable."""

import pytest

from gangline.cli.output import print_or_write, terminal_width
from gangline.cli.terminal import show_in_browser
from gangline.errors import StorageError


@pytest.mark.parametrize("out", [None, "-"])
def test_without_a_file_the_text_alone_is_on_stdout(out, capsys):
    print_or_write("text\n", out)
    assert capsys.readouterr().out == "text\n"


def test_a_file_is_made_with_its_folders_and_reported(tmp_path, capsys):
    out = tmp_path / "new" / "a.txt"
    print_or_write("Größe\n", out)
    assert out.read_text("utf-8") == "Größe\n"
    assert capsys.readouterr().out == f"{out}\n"


@pytest.mark.parametrize("place", ["file/a.txt", "."])
def test_a_place_that_takes_no_file_is_reported_as_such(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"wanted to write {tmp_path / place}, found"):
        print_or_write("text", tmp_path / place)


def test_no_one_who_looks_gets_the_width_that_was_asked_for():
    assert (terminal_width(), terminal_width(80)) == (100, 80)


def test_without_a_browser_the_page_is_named(monkeypatch, capsys, tmp_path):
    asked = []
    monkeypatch.setattr("webbrowser.open", asked.append)
    page = tmp_path / "a page.html"
    show_in_browser(page)
    show_in_browser("http://127.0.0.1:4750/")
    assert asked == [f"file://{tmp_path}/a%20page.html", "http://127.0.0.1:4750/"]
    assert [line.rpartition("; ")[2] for line in capsys.readouterr().err.splitlines()] == [
        f"open {page} yourself",
        "open http://127.0.0.1:4750/ yourself",
    ]
