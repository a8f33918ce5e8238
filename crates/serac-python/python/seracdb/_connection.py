"""Connections."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from seracdb import _errors, _plan, _progress, _seracdb
from seracdb._blocks import BlockMap
from seracdb._cursor import Cursor
from seracdb._frames import known
from seracdb._lent import registered
from seracdb._result import Result
from seracdb._table import Table
from seracdb._transactions import Transaction, transact

if TYPE_CHECKING:
    from seracdb._procedures import Columns

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_BLOCKS = (
    "SELECT schema_name, table_name, block, state, rows, empty_slots, heap_bytes, garbage_bytes, bytes "
    "FROM serac_blocks"
)
_TABLES_WITH_BLOCKS = "SELECT DISTINCT schema_name, table_name FROM serac_blocks ORDER BY 1, 2"
_FROZEN = (
    "SELECT schema_name, table_name, count(*) FILTER (WHERE state = 'frozen') AS frozen_blocks, count(*) AS blocks "
    "FROM serac_blocks WHERE schema_name || '.' || table_name = ANY(:tables) GROUP BY 1, 2 ORDER BY 1, 2"
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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
        self._read_only = bool(arguments[4])
        self._progress_is_shown = False

    def _show_progress(self, progress: bool | None) -> None:
        """Shows bars for long statements, if they are wanted."""
        self._progress_is_shown = _progress.is_wanted() if progress is None else progress
        if self._progress_is_shown:
            _progress.watch(self)

    @property
    def read_only(self) -> bool:
        """Whether the connection only reads."""
        return self._read_only

    def connect(self, *, read_only: bool | None = None, autocommit: bool | None = None) -> Connection:
        """Another connection to the same database, which may be one in memory: of the same kind,
        unless something else is said."""
        if read_only is None:
            read_only = self._read_only
        if autocommit is None:
            autocommit = self.autocommit
        other = type(self)("", None, None, None, read_only, autocommit, self.scan_variables, self)
        other._show_progress(self._progress_is_shown)
        return other

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

    def register(self, name: str, frame: Any) -> Connection:
        """Lets statements read a frame under a name, until ``unregister``. Returns the connection.

        A frame is anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` — of pandas,
        Polars, pyarrow —, or a ``dict`` of NumPy's arrays. It is not copied, and a statement sees
        it as it is then. What has no length, as a reader, can be read once. A table, a view or a
        query of WITH of the same name hides it.
        """
        self._registered[name] = registered(name, frame)
        return self

    def unregister(self, name: str) -> Connection:
        """Forgets a registered frame. Returns the connection."""
        if self._registered.pop(name, None) is None:
            raise _errors.ProgrammingError(f'no frame "{name}" is registered', sqlstate="42P01", name=name)
        return self

    def create_function(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Sequence[Any] | None = None,
        returns: Any = None,
        *,
        kind: str = "scalar",
        null_handling: str = "default",
        volatility: str = "volatile",
    ) -> Connection:
        """Lets this connection's statements call a Python function. Returns the connection.

        ``parameters`` and ``returns`` are types: SQL's as texts (``"numeric(10, 2)"``), classes
        (``int``, ``list[str]``, ``datetime.date``) or types of pyarrow. What is left out is taken
        from the annotations. ``kind="arrow"``: the function takes pyarrow's arrays of the rows of a
        batch, and gives an array of as many values. ``null_handling="default"``: it is not called
        for rows with a NULL among their arguments, and their value is NULL; ``"special"``: it gets
        ``None``. ``volatility``: ``"immutable"`` or ``"stable"`` if the same arguments have the
        same value, always or within a statement; then it may be called once where they are
        constants.

        The function replaces an earlier one of the same name. The database itself does not keep it.
        An exception in it is an error of the statement, with SQLSTATE 38000 and the traceback.
        """
        from seracdb import _functions

        _functions.create_function(
            self, name, function, parameters, returns, kind, null_handling, volatility
        )
        return self

    def create_aggregate(
        self,
        name: str,
        cls: type,
        parameters: Sequence[Any] | None = None,
        returns: Any = None,
        *,
        kind: str = "scalar",
        null_handling: str = "default",
    ) -> Connection:
        """Lets this connection's statements call a Python aggregate. Returns the connection.

        ``cls()`` is the state of a group. ``step(*values)`` adds a row to it, with ``kind="arrow"``
        pyarrow's arrays of the group's rows in a batch. ``finish()`` gives the value; a window
        calls it again after more rows. With ``merge(other)``, which adds another state, groups are
        aggregated on several threads; without it, the rows of a group are kept until the end. The
        other arguments are those of ``create_function``.
        """
        from seracdb import _functions

        _functions.create_aggregate(self, name, cls, parameters, returns, kind, null_handling)
        return self

    def create_table_function(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Sequence[Any] | None = None,
        columns: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
    ) -> Connection:
        """Lets this connection's statements call a Python function in FROM. Returns the connection.

        The function is called with constants. It gives a frame, as ``register`` takes it, or rows
        one by one: tuples, or dicts by the names of the columns. ``columns`` are their names and
        types. Rows are asked for as the statement needs them.
        """
        from seracdb import _functions

        _functions.create_table_function(self, name, function, parameters, columns)
        return self

    def remove_function(self, name: str) -> Connection:
        """Forgets a Python function, aggregate or function in FROM. Returns the connection."""
        if not self._take_function_back(name):
            raise _errors.ProgrammingError(f"the program has no function {name}", sqlstate="42883", name=name)
        return self

    @overload
    def create_procedure(
        self, name: str, function: None = None, *, parameters: Columns | None = None, returns: Columns | None = None
    ) -> Callable[[F], F]: ...
    @overload
    def create_procedure(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        parameters: Columns | None = None,
        returns: Columns | None = None,
    ) -> Connection: ...
    def create_procedure(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        *,
        parameters: Columns | None = None,
        returns: Columns | None = None,
    ) -> Connection | Callable[[Any], Any]:
        """Gives the database a procedure: ``CALL name(…)`` runs ``function(tx, …)`` in the
        transaction of the statement, for every connection and every client of a server. Returns the
        connection; without a function, a decorator of one.

        ``parameters``: names and types, ``{"id": "integer", "amount": Decimal}``; by default those
        of the function and its annotations. ``returns``: the same of the columns of its rows. It
        returns a list of rows, or one row: a tuple, a dict, or the value of the only column.

        ``tx.table(name)`` reads and writes rows by key (``RowTable``). The function runs with all
        rights, whoever calls it, and again after a conflict, so it must not do anything that a
        rollback does not undo. An exception ends the statement: with the SQLSTATE that it has, or
        with 38000, and the traceback in the detail.

        The procedure replaces an earlier one of the same name. It is there until
        ``drop_procedure``, or until the database is closed: the next process makes it anew.
        """
        from seracdb import _procedures

        if function is None:
            return _procedures.decorator(self, name, parameters, returns)
        _procedures.create_procedure(self, name, function, parameters, returns)
        return self

    def drop_procedure(self, name: str, *, if_exists: bool = False) -> Connection:
        """Takes a procedure from the database. Returns the connection. Calls that run go on."""
        from seracdb import _procedures

        _procedures.drop_procedure(self, name, if_exists)
        return self

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
        return self._append(table, known(frame), schema, create, if_exists)

    def ingest(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        table: str | None = None,
        *,
        schema: str | None = None,
        create: bool = True,
        if_exists: str = "append",
        format: str | None = None,  # noqa: A002
        progress: bool | Callable[[int], Any] = False,
        **options: Any,
    ) -> int:
        """Loads files into a table, all of their rows or none. Returns how many rows there are.

        ``files``: names and patterns (``"2024/*.parquet"``) of CSV, JSON, Parquet and Arrow.
        ``table`` is by default the name of the only file without its ending. It is made with the
        columns of the files if it is missing, unless ``create`` is false; ``if_exists`` is as for
        ``append``. Columns are matched by their names. ``format``: ``"csv"``, ``"json"``,
        ``"parquet"`` or ``"arrow"``, where names do not tell it. ``options`` are the named
        arguments of ``read_csv`` and its kin: ``delim=";"``, ``header=False``,
        ``union_by_name=True``.

        ``progress``: a function that is called with the number of rows so far, up to ten times a
        second; or ``True`` for a line on ``sys.stderr``. An exception in it ends the load.
        """
        from seracdb import _ingest

        paths = _ingest.paths_of(files)
        if table is None:
            table = _ingest.table_of(paths)
        function = None if format is None else _ingest.function_of(format)
        with _ingest.told(progress) as tell:
            return self._ingest(paths, table, schema, create, if_exists, function, list(options.items()), tell)

    def explain(self, query: str, parameters: Any = None, *, analyze: bool = False) -> _plan.Plan:
        """The plan of a query; with ``analyze`` the query is run, and its operators' rows and times
        are in the plan."""
        options = "ANALYZE, FORMAT JSON" if analyze else "FORMAT JSON"
        (document,) = self.execute(f"EXPLAIN ({options}) {query}", parameters).fetchone()  # type: ignore[misc]
        return _plan.of_text(document)

    def serve(
        self,
        pg: str | None = None,
        flight: str | None = None,
        metrics: str | None = None,
        *,
        users: Mapping[str, str] | None = None,
        token: str | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        allow_remote: bool = False,
        max_connections: int | None = None,
        shutdown_timeout: float | None = None,
    ) -> _seracdb.Server:
        """Serves the database to clients on the network, beside this program.

        ``pg``, ``flight`` and ``metrics`` are addresses for clients of PostgreSQL, for clients of
        Arrow Flight SQL (ADBC), and for monitors: ``"127.0.0.1:5432"``, or ``"127.0.0.1:0"`` for
        any port that is free. The server has the addresses. It answers until its ``stop()``, as
        the end of a ``with`` calls it, or until the process ends, also when the connection is
        closed before.

        ``users`` are names and passwords, besides the roles that have passwords; without any
        password everybody who reaches the address may connect. ``token`` lets its bearer in at
        ``flight``. With ``tls_cert`` and ``tls_key``, files with PEM, connections are encrypted.
        Addresses that other machines reach need passwords and encryption, or ``allow_remote``.
        ``shutdown_timeout``: seconds that statements may go on after ``stop()``.
        """
        if self._read_only:
            message = "a connection that only reads cannot serve the database, because clients may write"
            raise _errors.ProgrammingError(message, sqlstate="25006")
        if (tls_cert is None) != (tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        tls = None if tls_cert is None or tls_key is None else (os.fspath(tls_cert), os.fspath(tls_key))
        everything = (pg, flight, metrics, dict(users or {}), token, tls, allow_remote)
        return self._serve(*everything, max_connections, shutdown_timeout)

    def backup(self, folder: str | os.PathLike[str]) -> Result:
        """Writes a copy of the database, as it is now, into a folder that does not exist or is
        empty. ``seracdb.connect(folder)`` opens it. Other connections go on meanwhile.

        The result's row has the ``tables`` and ``rows`` of the copy, the ``blocks_written``, the
        ``blocks_copied`` with the files in which they lay, and the ``bytes`` of all.
        """
        return self._report(self._backup(os.fspath(folder)), "blocks_copied")

    def checkpoint(self) -> Result:
        """Writes a checkpoint: opening the database then replays no log from before it.

        The result's row has the ``tables`` and ``rows`` in it, the ``blocks_written``, the
        ``blocks_kept`` in files that were there, and the ``bytes`` written.
        """
        return self._report(self._checkpoint(), "blocks_kept")

    def freeze(self, table: str | None = None, *, schema: str = "public") -> Result:
        """Compacts and freezes the blocks of a table, or of all tables of the connection's user
        that freeze. The result has a row for each: ``schema_name``, ``table_name``,
        ``frozen_blocks`` and ``blocks``. A block stays hot if a running transaction holds it.
        """
        if table is None:
            known_tables = self._asked(_TABLES_WITH_BLOCKS)
            tables = known_tables.rows(len(known_tables))
        else:
            tables = [(schema, table)]
        frozen = []
        for names in tables:
            try:
                self.execute("FREEZE TABLE " + ".".join(_quoted(name) for name in names))
            except _errors.DatabaseError as error:
                # One that never freezes, or another user's, or one that has gone.
                if table is not None or error.sqlstate not in ("55000", "42501", "42P01"):
                    raise
            else:
                frozen.append(".".join(names))
        return self._result(_FROZEN, {"tables": frozen})

    def blocks(self, table: str | None = None, *, schema: str = "public") -> BlockMap:
        """The blocks of a table, or of all, with their states: a map when it is shown."""
        if table is None:
            return BlockMap(self._asked(f"{_BLOCKS} ORDER BY 1, 2, 3"))
        self._asked(f"SELECT 1 FROM {_quoted(schema)}.{_quoted(table)} LIMIT 0")
        query = f"{_BLOCKS} WHERE schema_name = $1 AND table_name = $2 ORDER BY 3"
        return BlockMap(self._asked(query, (schema, table)))

    def metrics(self) -> Result:
        """The figures of the database: those that monitors get, by name and labels."""
        return self._result("SELECT * FROM serac_metrics")

    def _asked(self, query: str, parameters: Any = None) -> _seracdb.Batches:
        """The rows of a query of the package itself, which leaves no transaction open."""
        was_idle = self.transaction_status == "idle"
        try:
            return self.execute(query, parameters)._batches()
        finally:
            if was_idle:
                self.rollback()

    def _result(self, query: str, parameters: Any = None) -> Result:
        return Result(self._asked(query, parameters))

    def _report(self, report: tuple[int, ...], unchanged: str) -> Result:
        names = ("tables", "rows", "blocks_written", unchanged, "bytes")
        columns = ", ".join(f"${at + 1}::BIGINT AS {name}" for at, name in enumerate(names))
        return self._result(f"SELECT {columns}", report)

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
    scan_variables: bool = True,
    progress: bool | None = None,
) -> Connection:
    """Opens the database in the folder ``path``, or one in memory.

    ``durability``: when a commit is acknowledged: ``"full"`` (on the disk; the default),
    ``"relaxed"`` (at once; a crash loses at most the last 10 ms), ``"off"`` (only closing keeps
    it). ``memory_limit``: bytes that all queries together may use before they spill. ``threads``:
    those of a query, by default one for each processor. These belong to the database: further
    connections of the process to the folder share them.

    ``read_only``: transactions of the connection only read, whatever SQL says, and a missing
    database is not made.
    ``autocommit``: each statement is a transaction of its own. By default, as DB-API has it, the
    first statement begins a transaction, also one that only reads; it lasts until ``commit()`` or
    ``rollback()``, and its statements see one snapshot.

    ``scan_variables``: whether a name in FROM that no table, view or query of WITH has is looked
    for among the local and global variables of the code that runs the statement. It can be changed
    by the attribute of the connection. ``progress``: bars for statements that take longer than two
    seconds; by default in terminals and notebooks.
    """
    connection = Connection(path, durability, memory_limit, threads, read_only, autocommit, scan_variables)
    connection._show_progress(progress)
    return connection
