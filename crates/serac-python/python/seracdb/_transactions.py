"""Transactions as contexts, and transactions that are run again after a conflict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from seracdb._errors import DeadlockDetected, InterfaceError, ProgrammingError, SerializationFailure
from seracdb._seracdb import RowTable, RowTransaction

if TYPE_CHECKING:
    from seracdb import aio
    from seracdb._connection import Connection

T = TypeVar("T")

# The longest pause between two runs, in seconds.
_LONGEST_PAUSE = 0.1


class Rollback(Exception):
    """Raised in the block of a transaction, it rolls back the transaction, and goes no further."""

    def __init__(self, transaction: Transaction | aio.Transaction | None = None) -> None:
        super().__init__()
        self.transaction = transaction


class Transaction:
    """A transaction, or a savepoint in one: the block of a ``with``.

    The end of the block commits the transaction, or releases the savepoint; an exception rolls
    back.
    """

    def __init__(self, connection: Connection, modes: str = "") -> None:
        self._connection = connection
        self._modes = modes
        self._savepoint: str | None = None
        self._is_open = False
        self._rows: RowTransaction | None = None

    def __enter__(self) -> Transaction:
        if self._is_open:
            raise InterfaceError("the block of the transaction has been entered already")
        connection = self._connection
        if connection.transaction_status == "idle":
            connection._control(f"BEGIN {self._modes}")
        elif self._modes:
            raise ProgrammingError("a transaction inside another has the modes of that", sqlstate="25001")
        else:
            self._savepoint = f"python_{len(connection._transactions)}"
            connection._control(f"SAVEPOINT {self._savepoint}")
        connection._transactions.append(self)
        self._is_open = True
        return self

    def table(self, name: str, *, schema: str = "public") -> RowTable:
        """A table, to read and write its rows by key, without SQL. The name is taken as it is."""
        if not self._is_open:
            raise InterfaceError("the block of the transaction has not been entered, or has ended")
        if self._rows is None:
            self._rows = RowTransaction(self._connection)
        return self._rows.table(name, schema=schema)

    def __exit__(self, exception_type: Any, exception: Any, traceback: Any) -> bool:
        connection = self._connection
        self._is_open = False
        if self._rows is not None:
            self._rows._end()
            self._rows = None
        if self in connection._transactions:
            del connection._transactions[connection._transactions.index(self) :]
        is_wanted = isinstance(exception, Rollback) and exception.transaction in (None, self)
        if connection.closed:
            # That has rolled back.
            return is_wanted
        if exception is None:
            self._succeed()
            return False
        try:
            self._undo()
        except Exception as failed:
            # The first exception is what the user must see.
            exception.__context__ = failed
        return is_wanted

    def _succeed(self) -> None:
        connection = self._connection
        if self._savepoint is None:
            connection.commit()
            return
        if connection.transaction_status == "failed":
            # A statement has failed, and the exception was caught inside of the block.
            self._undo()
            raise ProgrammingError(
                "a statement of the block has failed, so the block was rolled back", sqlstate="25P02"
            )
        connection._control(f"RELEASE SAVEPOINT {self._savepoint}")

    def _undo(self) -> None:
        connection = self._connection
        if self._savepoint is None:
            connection.rollback()
        elif connection.transaction_status != "idle":
            connection._control(f"ROLLBACK TO SAVEPOINT {self._savepoint}")
            connection._control(f"RELEASE SAVEPOINT {self._savepoint}")


def transact(connection: Connection, fn: Callable[[Connection], T], attempts: int, modes: str) -> T | None:
    """Runs ``fn`` in a transaction, again after a conflict."""
    if attempts < 1:
        raise ValueError("a transaction is tried at least once")
    if connection.transaction_status != "idle":
        raise ProgrammingError("a transaction that may run again cannot run inside another: commit() ends that", sqlstate="25001")
    pause = 0.0005
    for attempt in range(1, attempts + 1):
        try:
            with Transaction(connection, modes):
                return fn(connection)
            # It was rolled back because it wanted to be.
            return None
        except (SerializationFailure, DeadlockDetected):
            if attempt == attempts:
                raise
        # Of different length each time, so that two transactions do not meet again and again.
        time.sleep(pause * random.random())
        pause = min(2 * pause, _LONGEST_PAUSE)
    raise AssertionError("the last attempt returns or raises")
