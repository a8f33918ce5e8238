"""Cursors: statements and their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from seracdb import _seracdb
from seracdb._frames import Frames
from seracdb._result import Result


class Cursor(_seracdb.Cursor, Frames):
    """A statement's result, as rows or as Arrow.

    Rows come from the database as they are asked for. A cursor iterates over them, or gives them as
    a frame: ``.arrow()``, ``.df()``, ``.pl()``, ``.fetchnumpy()``, or whatever takes an object with
    ``__arrow_c_stream__``.
    """

    def execute(self, operation: str, parameters: Any = None) -> Cursor:
        """Runs a statement and returns the cursor.

        Parameters stand as ``$1``, ``:1`` or ``?`` in the text, and are given in order; or they
        stand as ``:name``, and are given as a mapping. Without parameters the text may be a script:
        its last statement's result counts.
        """
        self._execute(operation, parameters)
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Any]) -> Cursor:
        """Runs a statement for each of many parameters: for all of them, or, after an error, for
        none."""
        connection = self.connection
        if not connection.autocommit and connection.transaction_status == "idle":
            # The transaction that is left open for commit().
            connection._control("BEGIN")
        with connection.transaction():
            self._execute_many(operation, seq_of_parameters)
        return self

    def callproc(self, procname: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        """Calls a procedure. Returns a copy of the parameters; rows that it gives are fetched."""
        name = ".".join('"' + part.replace('"', '""') + '"' for part in procname.split("."))
        marks = ", ".join(f"${at + 1}" for at in range(len(parameters)))
        self._execute(f"CALL {name}({marks})", parameters or None)
        return list(parameters)

    def result(self) -> Result:
        """The rows that are left, in memory: they can be read again and again."""
        return Result(self._batches())

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Nothing: parameters tell their types."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing: values have any size."""

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
