"""Files into tables: their names, and what is told while they are loaded."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_FORMATS = ("csv", "json", "parquet", "arrow")


def paths_of(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The names of files."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    return [os.fspath(file) for file in files]


def table_of(paths: list[str]) -> str:
    """The name of the table for the only file."""
    if len(paths) != 1 or any(mark in paths[0] for mark in "*?["):
        raise ValueError("name the table: several files do not tell it")
    stem = os.path.basename(paths[0]).split(".")[0]
    if not stem:
        raise ValueError(f"name the table: {paths[0]!r} does not tell it")
    return stem


def function_of(format: str) -> str:  # noqa: A002
    """The function of SQL that reads files of a format."""
    if format not in _FORMATS:
        words = ", ".join(f'"{word}"' for word in _FORMATS)
        raise ValueError(f'format is one of {words}, not "{format}"')
    return f"read_{format}"


@contextlib.contextmanager
def told(progress: bool | Callable[[int], Any]) -> Iterator[Callable[[int], Any] | None]:
    """The function that is told of progress."""
    if progress is False or progress is None:
        yield None
    elif progress is True:
        has_written = False

        def write(rows: int) -> None:
            nonlocal has_written
            has_written = True
            sys.stderr.write(f"\r{rows:,} rows")
            sys.stderr.flush()

        try:
            yield write
        finally:
            if has_written:
                sys.stderr.write("\n")
    else:
        yield progress
