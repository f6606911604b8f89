"""Words of a program's command: `{seed}` is the seed, `{model.lr}` the key `lr` of `[model]`; other braces stay."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MODEL_KEY = re.compile(r"\{model\.([A-Za-z0-9_.-]+)\}")


def program_words(command: Sequence[str], *, seed: int, model: Mapping[str, Any]) -> tuple[str, ...]:
    """The command as it is started; its line was checked, so that every key is there."""
    return tuple(
        _MODEL_KEY.sub(lambda match: _text(_value(model, match[1])), word).replace("{seed}", str(seed))
        for word in command
    )


def missing_keys(command: Sequence[str], model: Mapping[str, Any]) -> Iterator[str]:
    """Keys of `[model]` that the command names and that are not there, or are no single value."""
    for word in command:
        for match in _MODEL_KEY.finditer(word):
            if not isinstance(_value(model, match[1]), (bool, int, float, str)):
                yield match[1]


def _value(model: Mapping[str, Any], key: str) -> Any:
    value: Any = model
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    """Text as it is, other values as TOML and JSON write them: `true`, `0.001`."""
    return value if isinstance(value, str) else json.dumps(value)
