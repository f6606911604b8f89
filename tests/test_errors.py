"""The error tree against the table that callers act on."""

import pytest

from gangline import errors


def every_class():
    return [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.GanglineError)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (2, "never"), (10, "never"), (20, "later"), (30, "never"), (31, "never"), (32, "changed"), (33, "same"),
        (34, "same"), (40, "same"), (50, "never"), (60, "never"), (70, "never"), (75, "again"), (42, "never"),
        (1, "never"),
    ],
)  # fmt: skip
def test_exit_code_decides_what_happens_next(code, expected):
    assert errors.retry_class(code) == expected


def test_signal_deaths_are_charged_unless_asked_for():
    assert errors.retry_class(137) == "same"
    assert errors.retry_class(143) == "same"
    assert errors.retry_class(137, disrupted=True) == "free"
    assert errors.retry_class(143, disrupted=True) == "free"
    assert errors.retry_class(143, saved=True) == "free"
    assert errors.retry_class(137, saved=True) == "same"


def test_docstring_tree_lists_every_class_with_its_code_and_retry_class():
    for cls in every_class():
        if cls is errors.GanglineError:
            continue
        line = next(
            line for line in errors.__doc__.splitlines() if cls.__name__ in line.split() or f" {cls.__name__} " in line
        )
        words = line.split()
        assert str(cls.exit_code) in words
        assert cls.retry in words


def test_every_class_has_a_code_of_its_own():
    classes = [cls for cls in every_class() if cls is not errors.GanglineError and "exit_code" in vars(cls)]
    assert len({cls.exit_code for cls in classes}) == len(classes)
    assert [errors.error_for(cls.exit_code) for cls in classes] == classes


def test_code_of_a_program_is_a_training_error():
    assert errors.error_for(7) is errors.TrainingError
    assert errors.error_for(40) is errors.StorageError
