"""Reading what is still being written."""

from gangline.launch.local.follower import Tail


def test_whole_lines_come_once_and_a_torn_one_when_it_is_whole(tmp_path):
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    path.write_text("one\ntw")
    assert tail.lines() == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert tail.lines() == ["two"]


def test_file_that_was_replaced_is_read_from_its_start(tmp_path):
    path = tmp_path / "log"
    tail = Tail(path)
    path.write_text("a long line of the first file\n")
    assert tail.lines() == ["a long line of the first file"]
    path.write_text("new\n")
    assert tail.lines() == ["new"]
