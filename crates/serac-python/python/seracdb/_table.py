"""Tables without SQL: scans that lend the database's memory, and frames into tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from seracdb._frames import Frames

if TYPE_CHECKING:
    from seracdb import _seracdb
    from seracdb._connection import Connection


class Scan(Frames):
    """The rows of a table at one moment, as Arrow.

    The batches of frozen blocks are the blocks' own memory. It never changes, and stays valid after
    later updates and after the connection is closed, for as long as something refers to it. A scan
    can be read several times, with the same rows.
    """

    __slots__ = ("_scan",)

    def __init__(self, scan: _seracdb.Scan) -> None:
        self._scan = scan

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._scan.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self._scan.__arrow_c_schema__()

    def _stream_of_durations(self) -> Any:
        return self._scan._stream_of_durations()


class Table:
    """A table of the database."""

    __slots__ = ("_connection", "name", "schema")

    def __init__(self, connection: Connection, name: str, schema: str) -> None:
        self._connection = connection
        self.name = name
        self.schema = schema

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Iterable[tuple[str, str, Any]] | None = None,  # noqa: A002
        *,
        stored: bool = False,
    ) -> Scan:
        """The rows of the table, as the connection's transaction sees them, or as they are now.

        ``columns``: which ones, in this order; by default all. ``filter``: conditions that all must
        hold, as ``("price", ">", 10)``, with ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``.

        By default decimals have 128 bits, and texts are string views. With ``stored`` every column
        has the form in which most blocks hold it, so that nothing of a frozen block is copied:
        decimals of up to 18 digits have 64 bits then, and texts are what the table freezes to.
        Polars 2.1 reads other numbers from decimals of 64 bits: ``.pl()`` gives it 128 bits.
        """
        conditions = [(column, comparison, value) for column, comparison, value in filter or ()]
        wanted = None if columns is None else list(columns)
        return Scan(self._connection._scan(self.schema, self.name, wanted, conditions, stored))

    def __datafusion_table_provider__(self, session: Any) -> Any:
        """The table for a session of datafusion-python: ``ctx.register_table("t", table)``.

        Each scan reads the rows as the connection's transaction sees them, or as they are then.
        """
        return self._connection._table_provider(self.schema, self.name, session)

    def append(self, frame: Any, *, create: bool = False) -> int:
        """Adds the rows of a frame: ``Connection.append``."""
        return self._connection.append(self.name, frame, schema=self.schema, create=create)

    def __repr__(self) -> str:
        return f"<seracdb.Table {self.schema}.{self.name}>"
