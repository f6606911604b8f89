"""Texts to ids of tokens, by a `tokenizer.json` of the library tokenizers."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from gangline.errors import ConfigError, NotInstalledError

ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
"""Tokens that end a document, as tokenizers call them."""


@dataclass(frozen=True, slots=True)
class TextTokenizer:
    """A tokenizer, and the token that it puts after each text."""

    tokenizer: Any
    digest: str
    """SHA-256 of its file."""
    end: str
    end_id: int
    dtype: str
    """`uint16` where all ids fit, else `uint32`."""

    @staticmethod
    def open(path: Path, end: str | None = None) -> "TextTokenizer":
        """The tokenizer of a file; `end`: token after each text, by default the one that its vocabulary has.

        Raises:
            ConfigError: The file is none of a tokenizer, has no such token, or the library is not installed.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise NotInstalledError(
                f"--tokens needs the library tokenizers, {error}; pip install tokenizers, or gangline[transformers]"
            ) from error
        try:
            data = path.read_bytes()
            found = Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises plain Exception
            raise ConfigError(f"{path}: wanted a tokenizer.json, found: {str(error)[:300]}") from error
        found.no_truncation()
        found.no_padding()
        names = ENDS if end is None else (end,)
        known = next(((name, id_) for name in names if (id_ := found.token_to_id(name)) is not None), None)
        if known is None:
            raise ConfigError(
                f"{path}: wanted a token that ends a text ({', '.join(names)}), found none; say --end TOKEN"
            )
        dtype = "uint16" if found.get_vocab_size() <= 1 << 16 else "uint32"
        return TextTokenizer(found, sha256(data).hexdigest(), *known, dtype)

    def encode(self, texts: Sequence[str]) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
        """Ids of all texts in a row, each with the end behind it, and the number of ids of each."""
        rows = [each.ids for each in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        flat = [one for row in rows for one in (*row, self.end_id)]
        return np.asarray(flat, dtype=self.dtype), np.asarray([len(row) + 1 for row in rows], dtype=np.int64)
