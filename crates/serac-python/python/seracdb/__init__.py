"""SeracDB: an embedded database for transactions and analysis whose storage is Apache Arrow.

>>> import seracdb
>>> con = seracdb.connect()
>>> con.execute("SELECT 6 * 7 AS answer").fetchall()
[(42,)]

The module follows DB-API 2.0 (PEP 249). What goes beyond: results are streams of Arrow
(``.arrow()``, ``.df()``, ``.pl()``), ``con.prepare`` compiles statements on keys,
``con.create_procedure`` makes procedures, ``con.table(…).scan()`` lends the database's own memory,
``con.append`` loads frames, ``con.serve`` lets clients of the network in, and ``seracdb.aio`` is
the package for asyncio.
"""

import atexit as _atexit
from typing import Any as _Any

from seracdb import _seracdb
from seracdb._blocks import BlockMap
from seracdb._connection import Connection, connect
from seracdb._cursor import Cursor
from seracdb._errors import (
    CheckViolation,
    DatabaseError,
    DataError,
    DeadlockDetected,
    Error,
    ForeignKeyViolation,
    IntegrityError,
    InterfaceError,
    InternalError,
    LockNotAvailable,
    NotNullViolation,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    QueryCanceled,
    SerializationFailure,
    UniqueViolation,
    Warning,  # noqa: A004 - DB-API's name
)
from seracdb._plan import Plan
from seracdb._result import Result
from seracdb._seracdb import RowTable, RowTransaction, Server, Statement, __version__
from seracdb._table import Scan, Table
from seracdb._transactions import Rollback, Transaction
from seracdb._types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    DBAPIType,
    Interval,
    Json,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

#: The version of DB-API.
apilevel = "2.0"
#: Threads may share the module and connections.
threadsafety = 2
#: Parameters as ``:name``. ``:1``, ``$1`` and ``?`` are understood, too.
paramstyle = "named"

__all__ = [
    "BINARY",
    "Binary",
    "BlockMap",
    "CheckViolation",
    "Connection",
    "Cursor",
    "DATETIME",
    "DBAPIType",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "DeadlockDetected",
    "Error",
    "ForeignKeyViolation",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interval",
    "Json",
    "LockNotAvailable",
    "NUMBER",
    "NotNullViolation",
    "NotSupportedError",
    "OperationalError",
    "Plan",
    "ProgrammingError",
    "QueryCanceled",
    "ROWID",
    "Result",
    "Rollback",
    "RowTable",
    "RowTransaction",
    "STRING",
    "Scan",
    "SerializationFailure",
    "Server",
    "Statement",
    "Table",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Transaction",
    "UniqueViolation",
    "Warning",
    "__version__",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]



def load_ipython_extension(ipython: _Any) -> None:
    """``%load_ext seracdb``: the magics ``%serac`` and ``%%serac``."""
    from seracdb import _magic

    _magic.load(ipython)


# At the end, no thread is left in Python code, and open databases write what they owe to the disk.
_atexit.register(_seracdb.end)
