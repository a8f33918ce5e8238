"""The package for asyncio: ``seracdb.aio.connect``.

>>> async with await seracdb.aio.connect() as con:
...     cursor = await con.execute("SELECT 6 * 7")
...     print(await cursor.fetchall())
[(42,)]

Each connection has a thread in which its statements run, so the event loop goes on meanwhile. When
a task is cancelled, the statement that it waits for is cancelled, and has ended when the task goes
on. Tasks may share a connection: its statements run one after another, and while a task is inside
of ``async with con.transaction()``, the statements of others wait. Statements of different
connections run beside each other; a ``Pool`` lends connections to tasks.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar, cast, overload

import seracdb
from seracdb import _lent, _plan
from seracdb._blocks import BlockMap
from seracdb._errors import DeadlockDetected, InterfaceError, ProgrammingError, SerializationFailure
from seracdb._result import Result
from seracdb._seracdb import Server
from seracdb._table import Scan
from seracdb._transactions import _LONGEST_PAUSE, Rollback

__all__ = [
    "Connection",
    "Cursor",
    "Pool",
    "Rollback",
    "RowTable",
    "Statement",
    "Table",
    "Transaction",
    "connect",
    "create_pool",
]

T = TypeVar("T")

#: Rows that ``async for`` brings from the connection's thread at a time.
_ROWS_AT_A_TIME = 256
#: The time between two cancellations of a statement that may not have begun at the first one.
_BETWEEN_CANCELS = 0.02

#: The transactions inside of which the task is. The tasks that it starts inherit them.
_inside: ContextVar[tuple[Transaction, ...]] = ContextVar("seracdb_transactions", default=())


class Connection:
    """A session of a database, for tasks of one event loop."""

    def __init__(self, connection: seracdb.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, "seracdb-aio")
        #: Held for a transaction, and by each statement outside of one.
        self._block = asyncio.Lock()
        #: Held for a statement.
        self._statement = asyncio.Lock()

    def _is_inside(self) -> bool:
        """Whether the task is inside of an open transaction of the connection."""
        return any(block._connection is self and block._is_open for block in _inside.get())

    async def _run(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Does the work of a statement in the connection's thread."""
        if self._is_inside():
            async with self._statement:
                # The transaction may have ended while the task waited.
                if self._is_inside():
                    return await self._in_thread(True, work, *arguments, **named)
        async with self._block:
            return await self._run_inside(work, *arguments, **named)

    async def _run_inside(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The same for a task that has the connection."""
        async with self._statement:
            return await self._in_thread(True, work, *arguments, **named)

    async def _finish(self, work: Callable[[asyncio.CancelledError | None], T]) -> T:
        """The same for work that ends a transaction: it is done also if the task is cancelled. The
        work is told so if that happens before its turn."""
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                await self._statement.acquire()
                break
            except asyncio.CancelledError as error:
                # Another task's statement still runs. A transaction that stayed open would become
                # that of the next task.
                cancelled = error
        try:
            result = await self._in_thread(False, work, cancelled)
        finally:
            self._statement.release()
        if cancelled is not None:
            raise cancelled
        return result

    async def _in_thread(self, cancels: bool, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Does work in the connection's thread, for a task that holds ``_statement``. ``cancels``:
        whether the end of the task cancels the work, or only waits for its end."""
        if self._connection.closed:
            raise InterfaceError("the connection is closed", sqlstate="08006")
        if self._connection.scan_variables:
            # The thread runs the statement for the code that awaits it.
            work = functools.partial(copy_context().run, _lent.run_for(_lent.caller())(work))
        running = asyncio.wrap_future(self._thread.submit(work, *arguments, **named))
        try:
            # Unlike `await running`, it does not give up the work when the task is cancelled.
            await asyncio.wait([running])
        except asyncio.CancelledError:
            await self._end(running, cancels)
            raise
        return running.result()

    async def _end(self, running: asyncio.Future[Any], cancels: bool) -> None:
        """Waits for the end of work, however often the task is cancelled again."""
        while not running.done():
            if cancels and not self._connection.closed:
                self._connection.cancel()
            try:
                await asyncio.wait([running], timeout=_BETWEEN_CANCELS)
            except asyncio.CancelledError:
                # The task ends when the work has ended.
                continue
        # Looked at, so that asyncio does not complain that nobody has.
        running.exception()

    async def connect(self, *, read_only: bool | None = None, autocommit: bool | None = None) -> Connection:
        """Another connection to the same database, which may be one in memory."""
        return Connection(await self._run(self._connection.connect, read_only=read_only, autocommit=autocommit))

    def cursor(self) -> Cursor:
        """A cursor."""
        return Cursor(self)

    async def execute(self, operation: str, parameters: Any = None) -> Cursor:
        """Runs a statement with a new cursor: ``Cursor.execute``."""
        return await Cursor(self).execute(operation, parameters)

    async def executemany(self, operation: str, seq_of_parameters: Iterable[Any]) -> Cursor:
        """Runs a statement for each of many parameters: ``Cursor.executemany``."""
        return await Cursor(self).executemany(operation, seq_of_parameters)

    async def prepare(self, sql: str) -> Statement:
        """Prepares a statement."""
        return Statement(self, await self._run(self._connection.prepare, sql))

    async def commit(self) -> None:
        """Commits the open transaction; without one, does nothing."""
        await self._run(self._connection.commit)

    async def rollback(self) -> None:
        """Rolls back the open transaction; without one, does nothing."""
        await self._run(self._connection.rollback)

    def transaction(self, modes: str = "") -> Transaction:
        """A transaction as a context (``async with``); inside another one, a savepoint."""
        return Transaction(self, modes)

    async def transact(
        self, fn: Callable[[Connection], Awaitable[T]], *, attempts: int = 32, modes: str = ""
    ) -> T | None:
        """Awaits ``fn(connection)`` in a transaction, and returns what it returns. If the
        transaction meets a conflict (SQLSTATE 40001, 40P01), it is rolled back and run again, up
        to ``attempts`` times."""
        if attempts < 1:
            raise ValueError("a transaction is tried at least once")
        if self._is_inside():
            raise ProgrammingError("a transaction that may run again cannot run inside another", sqlstate="25001")
        pause = 0.0005
        for attempt in range(1, attempts + 1):
            try:
                async with self.transaction(modes) as block:
                    if block._is_savepoint():
                        message = "a transaction that may run again cannot run inside another"
                        raise ProgrammingError(message, sqlstate="25001")
                    return await fn(self)
                # It was rolled back because it wanted to be.
                return None
            except (SerializationFailure, DeadlockDetected):
                if attempt == attempts:
                    raise
            await asyncio.sleep(pause * random.random())
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("the last attempt returns or raises")

    def table(self, name: str, *, schema: str = "public") -> Table:
        """A table, for scans and appends without SQL."""
        return Table(self, name, schema)

    async def append(
        self, table: str, frame: Any, *, schema: str | None = None, create: bool = False, if_exists: str = "append"
    ) -> int:
        """Adds the rows of a frame to a table, all of them or none. Returns how many there are."""
        append = self._connection.append
        return await self._run(append, table, frame, schema=schema, create=create, if_exists=if_exists)

    async def ingest(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        table: str | None = None,
        **options: Any,
    ) -> int:
        """Loads files into a table, all of their rows or none: ``seracdb.Connection.ingest``."""
        return await self._run(self._connection.ingest, files, table, **options)

    @property
    def scan_variables(self) -> bool:
        """Whether the variables of the code that awaits a statement are found in FROM."""
        return self._connection.scan_variables

    @scan_variables.setter
    def scan_variables(self, scan: bool) -> None:
        self._connection.scan_variables = scan

    def register(self, name: str, frame: Any) -> Connection:
        """Lets statements read a frame under a name. Returns the connection."""
        self._connection.register(name, frame)
        return self

    def unregister(self, name: str) -> Connection:
        """Forgets a registered frame. Returns the connection."""
        self._connection.unregister(name)
        return self

    async def create_function(self, name: str, function: Callable[..., Any], *types: Any, **options: Any) -> None:
        """Lets statements call a Python function, in a thread of the database:
        ``seracdb.Connection.create_function``."""
        await self._run(self._connection.create_function, name, function, *types, **options)

    async def create_aggregate(self, name: str, cls: type, *types: Any, **options: Any) -> None:
        """Lets statements call a Python aggregate: ``seracdb.Connection.create_aggregate``."""
        await self._run(self._connection.create_aggregate, name, cls, *types, **options)

    async def create_table_function(
        self, name: str, function: Callable[..., Any], *types: Any, **options: Any
    ) -> None:
        """Lets statements call a Python function in FROM:
        ``seracdb.Connection.create_table_function``."""
        await self._run(self._connection.create_table_function, name, function, *types, **options)

    async def remove_function(self, name: str) -> None:
        """Forgets a Python function, aggregate or function in FROM."""
        await self._run(self._connection.remove_function, name)

    async def create_procedure(self, name: str, function: Callable[..., Any], **types: Any) -> None:
        """Gives the database a procedure, which runs in a thread of the database:
        ``seracdb.Connection.create_procedure``."""
        await self._run(self._connection.create_procedure, name, function, **types)

    async def drop_procedure(self, name: str, *, if_exists: bool = False) -> None:
        """Takes a procedure from the database."""
        await self._run(self._connection.drop_procedure, name, if_exists=if_exists)

    async def explain(self, query: str, parameters: Any = None, *, analyze: bool = False) -> _plan.Plan:
        """The plan of a query."""
        return await self._run(self._connection.explain, query, parameters, analyze=analyze)

    async def serve(
        self, pg: str | None = None, flight: str | None = None, metrics: str | None = None, **options: Any
    ) -> Server:
        """Serves the database to clients on the network: ``seracdb.Connection.serve``."""
        return await self._run(self._connection.serve, pg, flight, metrics, **options)

    async def backup(self, folder: str | os.PathLike[str]) -> Result:
        """Writes a copy of the database, as it is now, into an empty folder."""
        return await self._run(self._connection.backup, folder)

    async def checkpoint(self) -> Result:
        """Writes a checkpoint."""
        return await self._run(self._connection.checkpoint)

    async def freeze(self, table: str | None = None, *, schema: str = "public") -> Result:
        """Compacts and freezes the blocks of a table, or of all."""
        return await self._run(self._connection.freeze, table, schema=schema)

    async def blocks(self, table: str | None = None, *, schema: str = "public") -> BlockMap:
        """The blocks of a table, or of all, with their states."""
        return await self._run(self._connection.blocks, table, schema=schema)

    async def metrics(self) -> Result:
        """The figures of the database."""
        return await self._run(self._connection.metrics)

    async def notices(self) -> list[tuple[str, str, str]]:
        """What statements have said since the last call: (severity, SQLSTATE, message)."""
        return await self._run(self._connection.notices)

    def cancel(self) -> None:
        """Cancels the statement that runs on this connection."""
        self._connection.cancel()

    async def close(self) -> None:
        """Closes the connection. An open transaction is rolled back."""
        if self._connection.closed:
            return
        # A statement that runs is waited for.
        async with self._statement:
            if self._connection.closed:
                # Another task has closed it meanwhile.
                return
            closing = asyncio.wrap_future(self._thread.submit(self._connection.close))
            self._thread.shutdown(wait=False)
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError:
                await self._end(closing, False)
                raise
            closing.result()

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._connection.closed

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, exception_type: Any, exception: Any, traceback: Any) -> None:
        if self.closed:
            return
        try:
            if exception is None:
                await self.commit()
        finally:
            await self.close()

    def __repr__(self) -> str:
        return f"<seracdb.aio.Connection {'closed' if self.closed else 'open'}>"


class Cursor:
    """A statement's result: rows by ``async for`` and ``await cursor.fetch…()``, or frames by
    ``await cursor.arrow()``, ``.df()``, ``.pl()``."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cursor = connection._connection.cursor()
        #: Rows that were brought and not given: those of ``async for``, and those of a task that
        #: was cancelled while it fetched. Changed in the connection's thread as well.
        self._ahead: deque[tuple[Any, ...]] = deque()

    async def _run_anew(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs a statement whose result takes the place of the one before."""

        def run() -> T:
            # Here: a task that fetches may have brought rows meanwhile.
            self._ahead.clear()
            return work(*arguments)

        return await self.connection._run(run)

    async def execute(self, operation: str, parameters: Any = None) -> Cursor:
        """Runs a statement and returns the cursor: ``seracdb.Cursor.execute``."""
        await self._run_anew(self._cursor.execute, operation, parameters)
        return self

    async def executemany(self, operation: str, seq_of_parameters: Iterable[Any]) -> Cursor:
        """Runs a statement for each of many parameters: for all of them, or, after an error, for
        none."""
        await self._run_anew(self._cursor.executemany, operation, seq_of_parameters)
        return self

    async def callproc(self, procname: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        """Calls a procedure. Returns the parameters; rows that it gives are fetched."""
        return await self._run_anew(self._cursor.callproc, procname, parameters)

    @property
    def description(self) -> Any:
        """The columns of the result; None for a statement without rows."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """Rows that the last statement found or changed; -1 while that is not known."""
        return self._cursor.rowcount

    @property
    def rownumber(self) -> int | None:
        """Rows read so far; None without a result."""
        number = self._cursor.rownumber
        return None if number is None else number - len(self._ahead)

    @property
    def arraysize(self) -> int:
        """Rows that fetchmany() gives."""
        return self._cursor.arraysize

    @arraysize.setter
    def arraysize(self, rows: int) -> None:
        self._cursor.arraysize = rows

    async def _bring(self, fetch: Callable[..., list[tuple[Any, ...]]], *arguments: Any) -> None:
        """Brings rows. If the task is cancelled, they wait for the next one that fetches."""
        await self.connection._run(lambda: self._ahead.extend(fetch(*arguments)))

    async def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last."""
        if not self._ahead:
            await self._bring(self._cursor.fetchmany, 1)
        return self._ahead.popleft() if self._ahead else None

    async def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next ``size`` rows, by default ``arraysize``."""
        wanted = self.arraysize if size is None else size
        if len(self._ahead) < wanted:
            await self._bring(self._cursor.fetchmany, wanted - len(self._ahead))
        return [self._ahead.popleft() for _ in range(min(wanted, len(self._ahead)))]

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        await self._bring(self._cursor.fetchall)
        rows = list(self._ahead)
        self._ahead.clear()
        return rows

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        while rows := await self.fetchmany(_ROWS_AT_A_TIME):
            self._ahead.extendleft(reversed(rows))
            while self._ahead:
                yield self._ahead.popleft()

    async def _frame(self, make: Callable[[], T]) -> T:
        if self._ahead:
            raise InterfaceError("rows were brought for `async for`: execute the statement again", sqlstate="08P01")
        return await self.connection._run(make)

    async def arrow(self) -> Any:
        """A ``pyarrow.Table``."""
        return await self._frame(self._cursor.arrow)

    async def df(self) -> Any:
        """A ``pandas.DataFrame``."""
        return await self._frame(self._cursor.df)

    async def pl(self) -> Any:
        """A ``polars.DataFrame``."""
        return await self._frame(self._cursor.pl)

    async def fetchnumpy(self) -> dict[str, Any]:
        """A dict of NumPy arrays by the names of columns."""
        return await self._frame(self._cursor.fetchnumpy)

    async def result(self) -> Result:
        """The rows that are left, in memory: they can be read again and again."""
        return await self._frame(self._cursor.result)

    async def close(self) -> None:
        """Frees the result. The cursor cannot be used any more."""
        self._ahead.clear()
        self._cursor.close()

    @property
    def closed(self) -> bool:
        """Whether the cursor or its connection is closed."""
        return self._cursor.closed

    async def __aenter__(self) -> Cursor:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class Statement:
    """A prepared statement: ``await statement(key)``."""

    def __init__(self, connection: Connection, statement: seracdb.Statement) -> None:
        self._connection = connection
        self._statement = statement

    async def __call__(self, *parameters: Any, **names: Any) -> list[tuple[Any, ...]] | int:
        """Runs the statement: a list of rows, or how many rows it has changed."""
        return await self._connection._run(self._statement, *parameters, **names)

    async def one(self, *parameters: Any, **names: Any) -> tuple[Any, ...] | None:
        """Runs the statement: its first row, or None if there is none."""
        return await self._connection._run(self._statement.one, *parameters, **names)

    @property
    def sql(self) -> str:
        """The text of the statement."""
        return self._statement.sql

    @property
    def is_point(self) -> bool:
        """Whether the statement is compiled to direct calls of the storage."""
        return self._statement.is_point


class Transaction:
    """A transaction, or a savepoint in one: the block of an ``async with``.

    The end of the block commits the transaction, or releases the savepoint; an exception, also the
    cancellation of the task, rolls back. Tasks that are started inside of the block belong to it.
    """

    def __init__(self, connection: Connection, modes: str) -> None:
        self._connection = connection
        self._block = connection._connection.transaction(modes)
        self._has_connection = False
        self._is_open = False

    def _is_savepoint(self) -> bool:
        return self._block._savepoint is not None

    def table(self, name: str, *, schema: str = "public") -> RowTable:
        """A table, to read and write its rows by key, without SQL. The name is taken as it is."""
        return RowTable(self._connection, self._block.table(name, schema=schema))

    async def __aenter__(self) -> Transaction:
        connection = self._connection
        if not connection._is_inside():
            await connection._block.acquire()
            self._has_connection = True
        try:
            await connection._run_inside(self._block.__enter__)
        except BaseException:
            try:
                if self._block._is_open:
                    # It has begun, and the task has been cancelled.
                    await connection._finish(lambda _: self._block.__exit__(None, Rollback(self._block), None))
            finally:
                self._give_back()
            raise
        self._is_open = True
        _inside.set((*_inside.get(), self))
        return self

    async def __aexit__(self, exception_type: Any, exception: Any, traceback: Any) -> bool:
        try:
            if self._connection.closed:
                return False
            if isinstance(exception, Rollback) and exception.transaction is self:
                exception.transaction = self._block

            def leave(cancelled: asyncio.CancelledError | None) -> bool:
                if cancelled is not None:
                    return self._block.__exit__(type(cancelled), cancelled, None)
                return self._block.__exit__(exception_type, exception, traceback)

            return await self._connection._finish(leave)
        finally:
            self._is_open = False
            _inside.set(tuple(block for block in _inside.get() if block is not self))
            self._give_back()

    def _give_back(self) -> None:
        if self._has_connection:
            self._has_connection = False
            self._connection._block.release()


class RowTable:
    """A table, row by row: ``seracdb.RowTable``. A key is the value of its column, or a tuple of
    several."""

    def __init__(self, connection: Connection, table: seracdb.RowTable) -> None:
        self._connection = connection
        self._table = table

    @property
    def schema(self) -> str:
        """The schema of the table."""
        return self._table.schema

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    async def get(
        self, key: Any, *, columns: Iterable[str] | None = None, index: str | None = None
    ) -> dict[str, Any] | None:
        """The row with a key; None if there is none."""
        return await self._connection._run(self._table.get, key, columns=columns, index=index)

    @overload
    async def insert(self, row: Mapping[str, Any], *, returning: None = None) -> None: ...
    @overload
    async def insert(self, row: Mapping[str, Any], *, returning: Iterable[str]) -> dict[str, Any]: ...
    async def insert(
        self, row: Mapping[str, Any], *, returning: Iterable[str] | None = None
    ) -> dict[str, Any] | None:
        """Inserts a row. Returns the columns of it that are asked for."""
        work = cast("Callable[..., dict[str, Any] | None]", self._table.insert)
        return await self._connection._run(work, row, returning=returning)

    async def update(self, key: Any, changes: Mapping[str, Any], *, index: str | None = None) -> bool:
        """Updates columns of the row with a key. Whether there is one."""
        return await self._connection._run(self._table.update, key, changes, index=index)

    async def delete(self, key: Any, *, index: str | None = None) -> bool:
        """Deletes the row with a key. Whether there was one."""
        return await self._connection._run(self._table.delete, key, index=index)

    async def scan(
        self,
        start: Any = None,
        stop: Any = None,
        *,
        prefix: Any = None,
        columns: Iterable[str] | None = None,
        index: str | None = None,
        reverse: bool = False,
        limit: int = 1_000,
    ) -> list[dict[str, Any]]:
        """The rows of a range of keys, from ``start`` up to but without ``stop``, in the order of
        the index."""
        work, of = self._table.scan, {"prefix": prefix, "columns": columns, "index": index}
        return await self._connection._run(work, start, stop, **of, reverse=reverse, limit=limit)


class Table:
    """A table of the database."""

    def __init__(self, connection: Connection, name: str, schema: str) -> None:
        self._connection = connection
        self._table = connection._connection.table(name, schema=schema)

    async def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Iterable[tuple[str, str, Any]] | None = None,  # noqa: A002
        *,
        stored: bool = False,
    ) -> Scan:
        """The rows of the table: ``seracdb.Table.scan``. Nothing is read yet:
        ``asyncio.to_thread(scan.pl)`` reads a large table beside the event loop."""
        return await self._connection._run(self._table.scan, columns, filter, stored=stored)

    async def append(self, frame: Any, *, create: bool = False) -> int:
        """Adds the rows of a frame: ``Connection.append``."""
        return await self._connection._run(self._table.append, frame, create=create)


class Pool:
    """Connections to one database for many tasks: ``async with pool.connection() as con``.

    A task waits while all ``size`` connections are in use. A transaction that it has left open is
    committed, or rolled back after an exception.
    """

    def __init__(self, first: Connection, size: int) -> None:
        if size < 1:
            raise ValueError("a pool has at least one connection")
        self._first = first
        self._seats = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for one task."""
        async with self._seats:
            if self._closed:
                raise InterfaceError("the pool is closed", sqlstate="08P01")
            if self._idle:
                connection = self._idle.pop()
            else:
                connection = await self._first.connect()
            try:
                yield connection
                await connection.commit()
            except BaseException:
                if not connection.closed:
                    await connection._finish(lambda _: connection._connection.rollback())
                raise
            finally:
                if self._closed:
                    await connection.close()
                elif not connection.closed:
                    self._idle.append(connection)

    async def close(self) -> None:
        """Closes the connections: those in use when their tasks give them back."""
        self._closed = True
        for connection in [*self._idle, self._first]:
            await connection.close()
        self._idle.clear()

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


async def connect(
    path: str | os.PathLike[str] = ":memory:",
    *,
    durability: str | None = None,
    memory_limit: int | None = None,
    threads: int | None = None,
    read_only: bool = False,
    autocommit: bool = False,
    scan_variables: bool = True,
) -> Connection:
    """Opens the database in the folder ``path``, or one in memory, beside the event loop. The
    arguments are those of ``seracdb.connect``."""
    options: Mapping[str, Any] = {
        "durability": durability,
        "memory_limit": memory_limit,
        "threads": threads,
        "read_only": read_only,
        "autocommit": autocommit,
        "scan_variables": scan_variables,
        # A bar of one of many statements says little.
        "progress": False,
    }
    return Connection(await asyncio.to_thread(lambda: seracdb.connect(path, **options)))


async def create_pool(path: str | os.PathLike[str] = ":memory:", *, size: int = 8, **options: Any) -> Pool:
    """Opens a database for a pool of connections: the arguments of ``connect``."""
    return Pool(await connect(path, **options), size)
