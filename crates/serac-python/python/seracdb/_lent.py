"""Frames of the program: what SQL finds by a name, and how often it can be read."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import FrameType
from typing import Any

from seracdb._errors import ProgrammingError
from seracdb._frames import known
from seracdb._seracdb import Cursor as _Cursor

#: The code that runs a statement, or its variables.
Caller = FrameType | Mapping[str, Any]

#: The same where another thread, or a magic of a notebook, runs the statement for it.
_told_caller: ContextVar[Caller | None] = ContextVar("seracdb_caller", default=None)

#: Frames that can be read once and have been: by the number of the object, which dies with it.
_read: dict[int, weakref.ref[Any]] = {}
_lock = threading.Lock()


class LentFrame:
    """A frame under a name, as the database reads it."""

    __slots__ = ("name", "once", "rows", "value")

    def __init__(self, name: str, value: Any, once: bool, rows: int | None) -> None:
        self.name = name
        self.value = value
        #: Whether its rows can be read only once.
        self.once = once
        self.rows = rows

    def schema(self) -> Any:
        """What tells the columns without reading; None if nothing does."""
        for teller in (self.value, getattr(self.value, "schema", None)):
            if hasattr(type(teller), "__arrow_c_schema__"):
                return teller
        return None

    def take(self) -> Any:
        """The frame, for reading it. A reader is given once."""
        # A cursor says itself that its rows have been read: it may be executed again.
        if self.once and not isinstance(self.value, _Cursor):
            key = id(self.value)
            with _lock:
                if key in _read:
                    raise ProgrammingError(
                        f'the reader "{self.name}" has been read: its rows come only once',
                        sqlstate="55000",
                        detail="A table can be read again and again: reader.read_all().",
                        name=self.name,
                    )
                _read[key] = weakref.ref(self.value, lambda _: _read.pop(key, None))
        return self.value


def lent(name: str, value: Any) -> LentFrame | None:
    """The value as a frame; None if it is none.

    A frame has ``__arrow_c_stream__`` or ``__arrow_c_array__``, or is a ``dict`` of NumPy's arrays.
    What has no length, as a reader, is read once.
    """
    if isinstance(value, type):
        return None
    if pandas := sys.modules.get("pandas"):
        if isinstance(value, getattr(pandas, "DataFrame", ())):
            import pyarrow

            # The index is no column, as it is none of the frame's.
            table = pyarrow.Table.from_pandas(value, preserve_index=False)
            return LentFrame(name, table, False, table.num_rows)
        if isinstance(value, getattr(pandas, "Series", ())):
            return None
    if polars := sys.modules.get("polars"):
        if isinstance(value, getattr(polars, "Series", ())):
            return None
        value = known(value.collect() if hasattr(polars, "LazyFrame") and isinstance(value, polars.LazyFrame) else value)
    if isinstance(value, dict):
        numpy = sys.modules.get("numpy")
        if numpy is None or not value or not all(isinstance(array, numpy.ndarray) for array in value.values()):
            return None
        import pyarrow

        value = pyarrow.table({str(column): array for column, array in value.items()})
    cls = type(value)
    if hasattr(cls, "__arrow_c_stream__"):
        if _is_column(value):
            return None
        # Scans of this package begin anew each time.
        once = not hasattr(cls, "__len__") and not hasattr(cls, "__arrow_c_array__") and not _begins_anew(value)
        rows = getattr(value, "num_rows", None) if hasattr(cls, "num_rows") else None
        if rows is None and hasattr(cls, "__len__"):
            rows = len(value)
        return LentFrame(name, value, once, rows if isinstance(rows, int) else None)
    if hasattr(cls, "__arrow_c_array__") and not _is_column(value):
        return LentFrame(name, value, False, None)
    return None


def _begins_anew(value: Any) -> bool:
    from seracdb._table import Scan

    return isinstance(value, Scan)


def _is_column(value: Any) -> bool:
    """Whether it is a single column of pyarrow, which speaks Arrow as a frame does."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(value, (pyarrow.Array, pyarrow.ChunkedArray))


def registered(name: str, value: Any) -> Any:
    """A frame that is to be registered. Raises TypeError for what is none."""
    if lent(name, value) is not None:
        return value
    raise TypeError(
        f"an object of type {type(value).__qualname__} is no frame: it has neither __arrow_c_stream__ nor "
        "__arrow_c_array__, and is no dict of arrays"
    )


def caller() -> Caller | None:
    """The code that has called this package."""
    told = _told_caller.get()
    if told is not None:
        return told
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "seracdb":
        frame = frame.f_back
    return frame


@contextlib.contextmanager
def run_for(caller: Caller | None) -> Iterator[None]:
    """Statements that run inside are the caller's."""
    token = _told_caller.set(caller)
    try:
        yield
    finally:
        _told_caller.reset(token)


def find(name: str, registrations: Mapping[str, Any], caller: Caller | None) -> LentFrame | None:
    """The frame of a name: a registered one, or a variable of the caller.

    SQL writes names that are not quoted in small letters. So a name in small letters also finds one
    that differs from it in capital letters alone, if there is only one.
    """
    scopes: list[Mapping[str, Any]] = [registrations]
    if isinstance(caller, FrameType):
        scopes += [caller.f_locals, caller.f_globals]
    elif caller is not None:
        scopes.append(caller)
    other = None
    for scope in scopes:
        if name in scope:
            found = lent(name, scope[name])
            if found is not None:
                return found
            other = other or scope[name]
    if name == name.lower():
        for scope in scopes:
            alike = [key for key in list(scope) if isinstance(key, str) and key.lower() == name and key != name]
            frames = [found for key in alike if (found := lent(key, scope[key])) is not None]
            if len(frames) > 1:
                names = ", ".join(sorted(frame.name for frame in frames))
                raise ProgrammingError(
                    f'the frame "{name}" is not unique: there are {names}', sqlstate="42P09", name=name
                )
            if frames:
                return frames[0]
    if other is not None:
        raise ProgrammingError(
            f'relation "{name}" does not exist',
            sqlstate="42P01",
            detail=f"The variable {name} is of type {type(other).__qualname__}, which is no frame.",
            name=name,
        )
    return None
