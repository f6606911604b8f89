"""Secrets as variables of ranks, and words without them."""

from gangline.keeper.ipc.gang_inputs import SECRET_NAMES, secret_environ, secret_values
from gangline.keeper.logs import log_files
from gangline.sanitize import conceal
from gangline.spec.gang.log_halves import older_half


def test_files_become_variables_and_their_names_are_reported(tmp_path):
    (tmp_path / "env.HUB_TOKEN").write_text("abcd-1234")
    (tmp_path / "env.OTHER").write_text("two\nlines")
    (tmp_path / "checkpoint-key").write_bytes(b"\xff\x00")
    found = secret_environ(tmp_path)
    assert found == {"HUB_TOKEN": "abcd-1234", "OTHER": "two\nlines", SECRET_NAMES: "HUB_TOKEN OTHER"}
    assert secret_environ(tmp_path / "nothing") == {}


def test_values_are_taken_out_the_longest_first_and_short_ones_left():
    environ = {SECRET_NAMES: "A B C", "A": "secret", "B": "secret-and-more", "C": "no"}
    values = secret_values(environ)
    assert values == ("secret-and-more", "secret")
    assert conceal("no secret-and-more, secret", values) == "no ***, ***"
    assert secret_values({"A": "not one of ours"}) == ()


def test_secrets_are_overwritten_in_logs_where_they_stand(tmp_path):
    log = tmp_path / "0.log"
    older_half(log).write_text("before secret\n")
    log.write_text("secret-and-more, secretsecret\nlast\n")
    log_files.redact([log, tmp_path / "none.log"], [b"secret-and-more", b"secret"])
    assert older_half(log).read_text() == "before ***   \n"
    assert log.read_text() == "***            , ***   ***   \nlast\n"
