"""Files that `gangline data pack` reads: JSON lines, text, CSV, Parquet, Arrow and tars of samples, as record batches.

Nothing of a tar is written to a disk; links, devices and members outside are refused by name.
"""

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from gangline.data.arrow_shards import (
    BATCH_BYTES,
    MOST_ROW_BYTES,
    batches_of,
    check_schema,
    column_types,
    columns_text,
    plain_schema,
    refuse_nulls,
)
from gangline.errors import ConfigError
from gangline.spec.config.problems import refusal
from gangline.spec.globs import is_inside

_COMPRESSED = (".gz", ".bz2", ".zst")
_BLOCK_BYTES = 16 << 20
"""Longest line of JSON or CSV."""
_TEXT = pa.schema([pa.field("text", pa.string())])
_TAR_COLUMNS = {"cls": pa.int64(), "txt": pa.string(), "json": pa.string()}
"""Columns of tars by the ending of a member; all others are bytes."""

Batches = Iterator[Any]


def open_input(path: Path, schema: pa.Schema | None, column: str | None = None) -> tuple[pa.Schema, Batches]:
    """Columns of a file and its rows in their order, as record batches.

    Args:
        path: Its ending says its format.
        schema: Columns of the files before; None: this is the first file, which decides them.
        column: The only column that is read, of text; None: all of them.

    Raises:
        ConfigError: The format is not known, or rows are damaged or of other columns; also raised while rows are read.
    """
    plain = path.with_suffix("") if path.suffix in _COMPRESSED else path
    if plain.suffix not in _READERS:
        raise refusal(f"{path}: wanted a file that ends in {', '.join(_READERS)} (and .gz), found another; convert it")
    with _file_errors(path):
        found, batches = _READERS[plain.suffix](path, schema, column)
        if column is not None:
            found = _text_column(found, column, path)
        check_schema(found, str(path))
    found = plain_schema(found)
    if schema is not None and found != schema:
        raise refusal(f"{path}: wanted the columns of the files before, {_words(schema)}; found {_words(found)}")
    return found, _checked(path, batches, found)


def _text_column(schema: pa.Schema, column: str, path: Path) -> pa.Schema:
    index = schema.get_field_index(column)
    if index < 0 or not (pa.types.is_string(kind := schema.field(index).type) or pa.types.is_large_string(kind)):
        raise refusal(f"{path}: wanted a column {column!r} of text, found {_words(schema)}; say --column NAME")
    return pa.schema([schema.field(index)])


def _checked(path: Path, batches: Batches, schema: pa.Schema) -> Batches:
    with _file_errors(path):
        for batch in batches:
            batch.validate(full=True)
            rows = batch.select(schema.names).cast(schema).replace_schema_metadata(None)
            refuse_nulls(rows, str(path))
            yield rows


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Errors of parsers become a ConfigError that names the file."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, tarfile.TarError, UnicodeDecodeError, EOFError, ValueError, KeyError) as error:
        raise refusal(f"{path}: wanted rows of one form, found: {str(error)[:500]}") from error
    except OSError as error:
        raise refusal(f"{path}: wanted a file that can be read, found: {error}") from error


def _words(schema: pa.Schema) -> str:
    return columns_text(column_types(schema))


def _read_json(path: Path, schema: pa.Schema | None, column: str | None) -> tuple[pa.Schema, Batches]:
    blocks = pa.json.ReadOptions(block_size=_BLOCK_BYTES)
    if column is not None:
        schema = pa.schema({column: pa.string()})
    if schema is None:
        schema = _plain(pa.json.open_json(str(path), blocks).schema)
    parse = pa.json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="ignore" if column is not None else "error"
    )
    return schema, iter(pa.json.open_json(str(path), blocks, parse))


def _read_csv(path: Path, schema: pa.Schema | None, column: str | None) -> tuple[pa.Schema, Batches]:
    blocks = pa.csv.ReadOptions(block_size=_BLOCK_BYTES)
    if column is not None:
        schema = pa.schema({column: pa.string()})
    if schema is None:
        schema = _plain(pa.csv.open_csv(str(path), blocks).schema)
    convert = pa.csv.ConvertOptions(column_types=schema, include_columns=[column] if column is not None else None)
    reader = pa.csv.open_csv(str(path), blocks, convert_options=convert)
    return reader.schema, iter(reader)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Columns as they are written: texts that look like times stay text, and texts that are missing are no column."""
    kinds = {each.name: each.type for each in schema}
    times = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
    return pa.schema({name: pa.string() if any(is_(kind) for is_ in times) else kind for name, kind in kinds.items()})


def _read_parquet(path: Path, _: pa.Schema | None, column: str | None) -> tuple[pa.Schema, Batches]:
    file = pa.parquet.ParquetFile(str(path))
    return file.schema_arrow, file.iter_batches(batch_size=1024, columns=None if column is None else [column])


def _read_arrow(path: Path, _schema: pa.Schema | None, _column: str | None) -> tuple[pa.Schema, Batches]:
    first = next(batches_of(path), None)
    if first is None:
        raise ConfigError(f"{path}: wanted rows, found none; leave the file out")
    return first.schema, batches_of(path)


def _read_text(path: Path, _schema: pa.Schema | None, _column: str | None) -> tuple[pa.Schema, Batches]:
    return _TEXT, _grouped(({"text": line} for line in _lines(path)), _TEXT)


def _lines(path: Path) -> Iterator[str]:
    """Lines that are not blank; memory holds one."""
    with pa.input_stream(str(path), compression="detect") as file:
        rest = b""
        while block := file.read(1 << 20):
            *whole, rest = (rest + block).split(b"\n")
            if len(rest) > MOST_ROW_BYTES:
                raise ValueError(f"a line of more than {MOST_ROW_BYTES:,} bytes")
            yield from (text for line in whole if (text := line.decode().strip()))
        if text := rest.decode().strip():
            yield text


def _read_tar(path: Path, schema: pa.Schema | None, column: str | None) -> tuple[pa.Schema, Batches]:
    first = next(_samples(path), None)
    if first is None:
        raise ConfigError(f"{path}: wanted samples, found a tar without files; leave it out")
    kinds = {name: _TAR_COLUMNS.get(name, pa.binary()) for name in first}
    found = schema if schema is not None and column is None else pa.schema({**kinds, "__key__": pa.string()})
    return found, _grouped(_of_columns(path, _samples(path), found), found)


def _of_columns(path: Path, samples: Iterator[dict[str, Any]], schema: pa.Schema) -> Iterator[dict[str, Any]]:
    for sample in samples:
        if sample.keys() != set(schema.names):
            wanted, found = ", ".join(sorted(schema.names)), ", ".join(sorted(sample))
            raise refusal(f"{path}: {sample['__key__']}: wanted members {wanted}, found {found}")
        yield sample


def _samples(path: Path) -> Iterator[dict[str, Any]]:
    """Samples of a tar: members in a row whose names are equal up to the first dot."""
    sample: dict[str, Any] = {}
    with tarfile.open(path, mode="r|*") as tar:
        for member in tar:
            if member.isdir():
                continue
            _refuse_member(path, member)
            at = PurePosixPath(member.name)
            stem, _, ending = at.name.partition(".")
            key = (at.parent / stem).as_posix()
            if sample and sample["__key__"] != key:
                yield sample
                sample = {}
            if not ending or ending in sample:
                raise refusal(f"{path}: {member.name}: wanted one file with an ending a sample and kind")
            content = tar.extractfile(member)
            assert content is not None  # it is a regular file
            sample |= {"__key__": key, ending: _member_value(path, member, ending, content.read())}
    if sample:
        yield sample


def _refuse_member(path: Path, member: tarfile.TarInfo) -> None:
    place = f"{path}: {member.name[:200]}"
    if not member.isreg():
        kind = "a link" if member.issym() or member.islnk() else "a device, a pipe or another kind"
        raise refusal(f"{place}: wanted regular files, found {kind}; write the tar without it")
    if not is_inside(member.name.removeprefix("./")):
        raise refusal(f"{place}: wanted a path that stays inside; write it relative, without ..")
    if member.size > MOST_ROW_BYTES:
        raise refusal(f"{place}: wanted at most {MOST_ROW_BYTES:,} bytes, found {member.size:,}; cut it")


def _member_value(path: Path, member: tarfile.TarInfo, ending: str, data: bytes) -> bytes | str | int:
    kind = _TAR_COLUMNS.get(ending)
    if kind is None:
        return data
    try:
        return int(data) if pa.types.is_integer(kind) else data.decode()
    except ValueError as error:
        raise refusal(f"{path}: {member.name}: wanted {kind}, found {data[:40]!r}") from error


def _grouped(rows: Iterator[dict[str, Any]], schema: pa.Schema) -> Batches:
    """Rows in batches of a few megabytes."""
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row.values())
        if size >= BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(group, schema)
            group, size = [], 0
    if group:
        yield pa.RecordBatch.from_pylist(group, schema)


_READERS: dict[str, Callable[[Path, Any, str | None], tuple[Any, Batches]]] = {
    ".jsonl": _read_json, ".ndjson": _read_json, ".txt": _read_text, ".csv": _read_csv,
    ".parquet": _read_parquet, ".arrow": _read_arrow, ".tar": _read_tar, ".tgz": _read_tar,
}  # fmt: skip
