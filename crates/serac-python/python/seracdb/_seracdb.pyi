from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, final, overload

from typing_extensions import Self, disjoint_base

__all__ = [
    "Batches",
    "Connection",
    "Cursor",
    "RowTable",
    "RowTransaction",
    "Scan",
    "Server",
    "Statement",
    "__version__",
    "close_all",
    "end",
    "create_procedure",
    "drop_procedure",
    "parameter_names",
]

__version__: str

def close_all() -> None: ...
def end() -> None: ...
def create_procedure(
    connection: Connection,
    name: str,
    function: Callable[..., Any],
    parameters: list[tuple[str, str]],
    returns: list[tuple[str, str]],
) -> None: ...
def drop_procedure(connection: Connection, name: str) -> bool: ...
def parameter_names(sql: str) -> list[str]: ...

@disjoint_base
class Connection:
    def __new__(
        cls,
        path: str | PathLike[str],
        durability: str | None,
        memory_limit: int | None,
        threads: int | None,
        read_only: bool,
        autocommit: bool,
        scan_variables: bool,
        of: Connection | None = None,
    ) -> Self: ...
    @property
    def autocommit(self) -> bool:
        """Whether each statement outside of transactions is one."""
    @autocommit.setter
    def autocommit(self, autocommit: bool) -> None: ...
    @property
    def scan_variables(self) -> bool:
        """Whether the variables of the code that runs a statement are found in FROM."""
    @scan_variables.setter
    def scan_variables(self, scan: bool) -> None: ...
    @property
    def _registered(self) -> dict[str, Any]: ...
    @property
    def transaction_status(self) -> str:
        """The state of the transaction: "idle", "open" or "failed"."""
    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
    def prepare(self, sql: str) -> Statement:
        """Prepares a statement."""
    def commit(self) -> None:
        """Commits the open transaction; without one, does nothing."""
    def rollback(self) -> None:
        """Rolls back the open transaction; without one, does nothing."""
    def cancel(self) -> None:
        """Cancels the statement that another thread runs on this connection."""
    def notices(self) -> list[tuple[str, str, str]]:
        """What statements have said since the last call: (severity, SQLSTATE, message)."""
    def close(self) -> None:
        """Closes the connection. An open transaction is rolled back."""
    def _serve(
        self,
        pg: str | None,
        flight: str | None,
        metrics: str | None,
        users: dict[str, str],
        token: str | None,
        tls: tuple[str, str] | None,
        allow_remote: bool,
        max_connections: int | None,
        shutdown_timeout: float | None,
    ) -> Server: ...
    def _backup(self, folder: str) -> tuple[int, int, int, int, int]: ...
    def _checkpoint(self) -> tuple[int, int, int, int, int]: ...
    def _progress(self) -> tuple[float, bool, int, tuple[int, int, str]] | None: ...
    def _control(self, statement: str) -> None: ...
    def _lend_function(
        self,
        name: str,
        kind: str,
        parameters: Sequence[str],
        returns: str | None,
        columns: Sequence[tuple[str, str]],
        volatility: str,
        is_strict: bool,
        object: Any,
        is_arrow: bool,
    ) -> None: ...
    def _take_function_back(self, name: str) -> bool: ...
    def _append(
        self, table: str, frame: Any, schema: str | None, create: bool, if_exists: str
    ) -> int: ...
    def _ingest(
        self,
        paths: Sequence[str | PathLike[str]],
        table: str,
        schema: str | None,
        create: bool,
        if_exists: str,
        function: str | None,
        options: Sequence[tuple[str, Any]],
        progress: Any,
    ) -> int: ...
    def _scan(
        self,
        schema: str,
        table: str,
        columns: Sequence[str] | None,
        filter: Sequence[tuple[str, str, Any]],
        stored: bool,
    ) -> Scan: ...
    def _table_provider(self, schema: str, table: str, session: Any) -> Any: ...

@disjoint_base
class Cursor(Iterator[tuple[Any, ...]]):
    def __new__(cls, connection: Connection) -> Self: ...
    @property
    def connection(self) -> Any:
        """The connection of the cursor."""
    @property
    def description(
        self,
    ) -> list[tuple[str, int, None, int | None, int | None, int | None, bool]] | None:
        """The columns of the result; None for a statement without rows."""
    @property
    def rowcount(self) -> int:
        """Rows that the last statement found or changed; -1 while that is not known."""
    @property
    def rownumber(self) -> int | None:
        """Rows read so far; None without a result."""
    @property
    def arraysize(self) -> int:
        """Rows that fetchmany() gives."""
    @arraysize.setter
    def arraysize(self, rows: int) -> None: ...
    @property
    def closed(self) -> bool:
        """Whether the cursor or its connection is closed."""
    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last."""
    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next ``size`` rows, by default ``arraysize``."""
    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
    def close(self) -> None:
        """Frees the result. The cursor cannot be used any more."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[Any, ...]: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...
    def _stream_of_durations(self) -> Any: ...
    def _execute(self, operation: str, parameters: Any = None) -> None: ...
    def _execute_many(self, operation: str, parameters: Iterable[Any]) -> None: ...
    def _batches(self) -> Batches: ...
    def _raise_failure(self) -> None: ...

@final
class Batches:
    @property
    def columns(self) -> list[str]: ...
    def rows(self, most: int) -> list[tuple[Any, ...]]: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...
    def _stream_of_durations(self) -> Any: ...

@final
class Server:
    @property
    def pg(self) -> str | None:
        """Where clients of PostgreSQL connect, as "postgresql://127.0.0.1:5432"."""
    @property
    def flight(self) -> str | None:
        """Where clients of Arrow Flight SQL connect, as "grpc://127.0.0.1:8815"."""
    @property
    def metrics(self) -> str | None:
        """Where monitors ask, as "http://127.0.0.1:9090/metrics"."""
    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The services with their hosts and ports: {"pg": ("127.0.0.1", 5432)}."""
    @property
    def running(self) -> bool:
        """Whether the server answers."""
    def stop(self) -> None:
        """Ends the server: takes no new clients, lets statements end, and waits for its threads."""
    def wait(self) -> None:
        """Waits until another thread stops the server, or until Ctrl-C, which stops it."""
    def __enter__(self) -> Server: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Statement:
    @property
    def sql(self) -> str:
        """The text of the statement."""
    @property
    def is_point(self) -> bool:
        """Whether the statement is compiled to direct calls of the storage."""
    def __call__(self, *parameters: Any, **names: Any) -> list[tuple[Any, ...]] | int:
        """Runs the statement: a list of rows, or how many rows it has changed."""
    def one(self, *parameters: Any, **names: Any) -> tuple[Any, ...] | None:
        """Runs the statement: its first row, or None if there is none."""

@final
class Scan:
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...
    def _stream_of_durations(self) -> Any: ...

@final
class RowTransaction:
    """A transaction without SQL: that of a procedure, or one of a connection."""

    def __new__(cls, connection: Connection) -> Self: ...
    def table(self, name: str, *, schema: str = "public") -> RowTable:
        """A table, by its name as it is."""
    def _end(self) -> None: ...

@final
class RowTable:
    """A table, row by row. A key is the value of its column, or a tuple of several."""

    @property
    def schema(self) -> str: ...
    @property
    def name(self) -> str: ...
    def get(
        self, key: Any, *, columns: Iterable[str] | None = None, index: str | None = None
    ) -> dict[str, Any] | None:
        """The row with a key; None if there is none."""
    @overload
    def insert(self, row: Mapping[str, Any], *, returning: None = None) -> None: ...
    @overload
    def insert(self, row: Mapping[str, Any], *, returning: Iterable[str]) -> dict[str, Any]: ...
    def update(self, key: Any, changes: Mapping[str, Any], *, index: str | None = None) -> bool:
        """Updates columns of the row with a key. Whether there is one."""
    def delete(self, key: Any, *, index: str | None = None) -> bool:
        """Deletes the row with a key. Whether there was one."""
    def scan(
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
