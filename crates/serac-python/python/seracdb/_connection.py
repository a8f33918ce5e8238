"""Connections."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from seracdb import _errors, _seracdb
from seracdb._cursor import Cursor
from seracdb._table import Table
from seracdb._transactions import Transaction, transact

T = TypeVar("T")


class Connection(_seracdb.Connection):
    """A session of a database.

    Threads may share a connection: its statements run one after another. Statements of different
    connections run beside each other. As a context, a connection commits and closes at the end, or
    rolls back and closes after an exception.
    """

    _transactions: list[Transaction]

    # DB-API's exceptions, also as attributes of the connection.
    Warning = _errors.Warning
    Error = _errors.Error
    InterfaceError = _errors.InterfaceError
    DatabaseError = _errors.DatabaseError
    DataError = _errors.DataError
    OperationalError = _errors.OperationalError
    IntegrityError = _errors.IntegrityError
    InternalError = _errors.InternalError
    ProgrammingError = _errors.ProgrammingError
    NotSupportedError = _errors.NotSupportedError

    def __init__(self, *arguments: Any) -> None:
        # The arguments are those of __new__.
        self._transactions = []

    def connect(self, *, read_only: bool = False, autocommit: bool | None = None) -> Connection:
        """Another connection to the same database, which may be one in memory."""
        if autocommit is None:
            autocommit = self.autocommit
        return type(self)("", None, None, None, read_only, autocommit, self)

    def cursor(self) -> Cursor:
        """A cursor."""
        return Cursor(self)

    def execute(self, operation: str, parameters: Any = None) -> Cursor:
        """Runs a statement with a new cursor: ``Cursor.execute``."""
        return Cursor(self).execute(operation, parameters)

    def executemany(self, operation: str, seq_of_parameters: Iterable[Any]) -> Cursor:
        """Runs a statement for each of many parameters: ``Cursor.executemany``."""
        return Cursor(self).executemany(operation, seq_of_parameters)

    def transaction(self, modes: str = "") -> Transaction:
        """A transaction as a context; inside another one, a savepoint.

        ``modes`` are those of BEGIN: ``"ISOLATION LEVEL SERIALIZABLE"``, ``"READ ONLY"``.
        """
        return Transaction(self, modes)

    def transact(self, fn: Callable[[Connection], T], *, attempts: int = 32, modes: str = "") -> T | None:
        """Runs ``fn(connection)`` in a transaction, and returns what it returns.

        If the transaction meets a conflict (SQLSTATE 40001, 40P01), it is rolled back and run
        again, up to ``attempts`` times. So ``fn`` must not do anything that a rollback does not
        undo.
        """
        return transact(self, fn, attempts, modes)

    def table(self, name: str, *, schema: str = "public") -> Table:
        """A table, for scans and appends without SQL. The name is taken as it is: it is no SQL."""
        return Table(self, name, schema)

    def append(
        self,
        table: str,
        frame: Any,
        *,
        schema: str | None = None,
        create: bool = False,
        if_exists: str = "append",
    ) -> int:
        """Adds the rows of a frame to a table, all of them or none. Returns how many there are.

        The frame is anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``: of pandas,
        Polars, pyarrow, or another cursor. Its columns are matched by their names; those of the
        table that it does not have take their defaults. With ``create`` a missing table is made.
        ``if_exists`` may be ``"replace"``, which makes the table anew, or ``"fail"``.
        """
        return self._append(table, frame, schema, create, if_exists)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, exception_type: Any, exception: Any, traceback: Any) -> None:
        if self.closed:
            return
        try:
            if exception is None:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<seracdb.Connection {'closed' if self.closed else 'open'}>"


def connect(
    path: str | os.PathLike[str] = ":memory:",
    *,
    durability: str | None = None,
    memory_limit: int | None = None,
    threads: int | None = None,
    read_only: bool = False,
    autocommit: bool = False,
) -> Connection:
    """Opens the database in the folder ``path``, or one in memory.

    ``durability``: when a commit is acknowledged: ``"full"`` (on the disk; the default),
    ``"relaxed"`` (at once; a crash loses at most the last 10 ms), ``"off"`` (only closing keeps
    it). ``memory_limit``: bytes that all queries together may use before they spill. ``threads``:
    those of a query, by default one for each processor. These belong to the database: further
    connections of the process to the folder share them.

    ``read_only``: transactions of the connection only read, and a missing database is not made.
    ``autocommit``: each statement is a transaction of its own. By default, as DB-API has it, the
    first statement that changes something begins a transaction, which lasts until ``commit()`` or
    ``rollback()``. Statements that only read begin none.
    """
    return Connection(path, durability, memory_limit, threads, read_only, autocommit)
