"""The package as a driver of ADBC, for ``adbc_driver_manager``: ``seracdb.adbc.connect``.

>>> with seracdb.adbc.connect("shop.db") as con, con.cursor() as cursor:
...     cursor.execute("SELECT 6 * 7 AS answer")
...     print(cursor.fetch_arrow_table())

The driver is the package's own extension. So its connections share the folders that the package has
open in the process.
"""

from __future__ import annotations

import os
from typing import Any

from seracdb import _seracdb

__all__ = ["DRIVER", "connect"]

#: The driver, for programs that load it themselves.
DRIVER: str = _seracdb.__file__


def connect(
    path: str | os.PathLike[str] = ":memory:",
    *,
    durability: str | None = None,
    memory_limit: int | None = None,
    threads: int | None = None,
    autocommit: bool = False,
) -> Any:
    """A connection of ``adbc_driver_manager.dbapi`` to the database in the folder ``path``, or to
    one in memory. The other arguments are those of ``seracdb.connect``."""
    try:
        from adbc_driver_manager import dbapi
    except ImportError:
        raise ImportError(
            "seracdb.adbc needs the package adbc-driver-manager: pip install adbc-driver-manager",
            name="adbc_driver_manager",
        ) from None
    options = {"durability": durability, "memory_limit": memory_limit, "threads": threads}
    given = {f"adbc.seracdb.{name}": str(value) for name, value in options.items() if value is not None}
    return dbapi.connect(driver=DRIVER, db_kwargs={"path": os.fspath(path), **given}, autocommit=autocommit)
