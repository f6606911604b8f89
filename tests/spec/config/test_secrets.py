"""References to secrets: the three forms, and files that others can read."""

import pytest

from gangline.errors import ConfigError
from gangline.spec.config.secrets import parse_reference, resolve_secret


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("secret:env:TOKEN", "env", "TOKEN"),
        ("secret:file:/run/secrets/a b", "file", "/run/secrets/a b"),
        ("secret:k8s:store/key", "k8s", "store/key"),
    ],
)
def test_reference_has_three_forms(text, kind, name):
    reference = parse_reference(text)
    assert (reference.kind, reference.name) == (kind, name)


@pytest.mark.parametrize("text", ["hunter2", "secret:hunter2", "secret:env:a b", "secret:k8s:nokey", "secret:env:A\n"])
def test_what_is_not_a_reference_is_refused_without_repeating_it(text):
    with pytest.raises(ConfigError) as caught:
        parse_reference(text)
    assert text not in str(caught.value)


def test_variable_and_closed_file_are_read(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    file.chmod(0o600)
    assert resolve_secret("secret:env:TOKEN", {"TOKEN": "abc"}) == "abc"
    assert resolve_secret(f"secret:file:{file}", {}) == "hunter2"


def test_file_open_to_others_is_refused(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        resolve_secret(f"secret:file:{file}", {})


@pytest.mark.parametrize("text", ["secret:env:NONE", "secret:file:/nonexistent/file", "secret:k8s:a/b"])
def test_secret_that_is_not_there_is_a_config_error(text):
    with pytest.raises(ConfigError, match="secret:"):
        resolve_secret(text, {})
