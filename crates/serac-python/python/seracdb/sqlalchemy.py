"""The dialect of SQLAlchemy: ``create_engine("seracdb:////path/of/folder")``.

SeracDB speaks PostgreSQL's SQL, and has PostgreSQL's catalogs. So the dialect is PostgreSQL's, with
this package as its driver, and with less where SeracDB has less: no types of users, no two-phase
commit. What SQLAlchemy has for PostgreSQL works: ``sqlalchemy.dialects.postgresql.insert``,
``JSONB``, the options ``postgresql_where``, ``postgresql_include`` and ``postgresql_using``.

| URL | database |
|---|---|
| ``seracdb://`` or ``seracdb:///:memory:`` | one in memory, of this engine |
| ``seracdb:///folder``, ``seracdb:////path/of/folder`` | the folder |

``durability``, ``memory_limit``, ``threads`` and ``read_only`` stand behind a ``?``, as
``seracdb.connect`` has them. The connection beneath is ``connection.connection.driver_connection``.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, cast, exc, pool, schema, type_coerce, types
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDDLCompiler, PGDialect, PGExecutionContext
from sqlalchemy.engine import processors

import seracdb
from seracdb import _url

if TYPE_CHECKING:
    from types import ModuleType

    from sqlalchemy.engine import URL
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIConnection, Dialect, IsolationLevel
    from sqlalchemy.sql.elements import ColumnElement

_MEMORY = ":memory:"

# PostgreSQL's numbers of the types of floating point.
_FLOATS = (700, 701)
_TEXT = 25

# The name of an index that a foreign key has brought along: that of the key, and this.
_OF_KEY = re.compile(r"_idx\d*$")


def _is_of_key(index: Any, columns: dict[str, list[str]]) -> bool:
    """Whether an index is that of a foreign key; ``columns`` are those of the table's foreign
    keys."""
    key = _OF_KEY.sub("", index["name"])
    return not index["unique"] and columns.get(key) == index["column_names"]


def _without_comments(found: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    for table, constraints in found:
        for constraint in constraints if isinstance(constraints, list) else [constraints]:
            constraint.pop("comment", None)
        yield table, constraints


class _Numeric(types.NumericCommon[Any]):
    def bind_processor(self, dialect: Dialect) -> None:
        return None

    def result_processor(self, dialect: Dialect, coltype: Any) -> Callable[[Any], Any] | None:
        is_float = coltype in _FLOATS
        if self.asdecimal:
            if is_float:
                return processors.to_decimal_processor_factory(decimal.Decimal, self._effective_decimal_return_scale)
            return None
        return None if is_float else processors.to_float


class _NumericType(_Numeric, types.Numeric[Any]):
    render_bind_cast = True


class _FloatType(_Numeric, types.Float[Any]):
    render_bind_cast = True


class _String(types.String):
    render_bind_cast = True


class _Enum(types.Enum):
    render_bind_cast = True


class _Integer(types.Integer):
    render_bind_cast = True


class _SmallInteger(types.SmallInteger):
    render_bind_cast = True


class _BigInteger(types.BigInteger):
    render_bind_cast = True


class _Boolean(types.Boolean):
    render_bind_cast = True


class _Date(types.Date):
    render_bind_cast = True


class _DateTime(types.DateTime):
    render_bind_cast = True


class _Time(types.Time):
    render_bind_cast = True


class _Interval(postgresql.INTERVAL):
    render_bind_cast = True

    @classmethod
    def adapt_emulated_to_native(cls, interval: types.Interval, **kw: Any) -> _Interval:
        return cls(precision=interval.second_precision)

    def literal_processor(self, dialect: Dialect) -> Callable[[datetime.timedelta], str]:
        def literal(value: datetime.timedelta) -> str:
            return f"INTERVAL '{value.days} days {value.seconds}.{value.microseconds:06} seconds'"

        return literal


class _Binary(types.LargeBinary):
    render_bind_cast = True


class _JSONIndex(types.JSON.JSONIntIndexType):
    __visit_name__ = "json_int_index"
    render_bind_cast = True


class _JSONKey(types.JSON.JSONStrIndexType):
    __visit_name__ = "json_str_index"
    render_bind_cast = True


class _Deserialized:
    """JSON that a function of the user's reads: the text comes, not what ``json.loads`` gives."""

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return type_coerce(cast(column, Text), self)  # type: ignore[arg-type]

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        deserialize = dialect._json_deserializer

        def process(value: Any) -> Any:
            if value is None:
                return None
            return deserialize(value if coltype == _TEXT else json.dumps(value))

        return process


class _DeserializedJSON(_Deserialized, postgresql.JSON[Any]):
    pass


class _DeserializedJSONB(_Deserialized, postgresql.JSONB[Any]):
    pass


class _Compiler(PGCompiler):
    def visit_frame_clause(self, frameclause: Any, **kw: Any) -> str:
        # The offsets of a frame are constants.
        return str(super().visit_frame_clause(frameclause, **{**kw, "literal_execute": True}))

    def fetch_clause(self, select: Any, **kw: Any) -> str:
        # The number of rows is a constant if those that are equal to the last one come, too.
        if select._fetch_clause is not None and select._fetch_clause_options["with_ties"]:
            kw["literal_execute"] = True
        return str(super().fetch_clause(select, **kw))


class _DDLCompiler(PGDDLCompiler):
    def visit_computed_column(self, generated: schema.Computed, **kw: Any) -> str:
        if generated.persisted is False:
            raise exc.CompileError("generated columns of SeracDB are stored: persisted=False is not possible")
        text = self.sql_compiler.process(generated.sqltext, include_table=False, literal_binds=True)
        return f"GENERATED ALWAYS AS ({text}) STORED"


class _ExecutionContext(PGExecutionContext):
    def create_server_side_cursor(self) -> Any:
        # Every cursor gets its rows as they are asked for.
        return self._dbapi_connection.cursor()


class SeracdbDialect(PGDialect):
    """SeracDB, embedded."""

    name = "seracdb"
    driver = "seracdb"
    supports_statement_cache = True
    default_paramstyle = "numeric_dollar"
    statement_compiler = _Compiler
    ddl_compiler = _DDLCompiler
    execution_ctx_cls = _ExecutionContext
    # Options of indexes, tables and constraints have PostgreSQL's prefix.
    construct_arguments = []

    supports_server_side_cursors = True
    supports_sane_multi_rowcount = True
    supports_native_enum = False
    supports_constraint_comments = False
    supports_native_json_serialization = False
    supports_native_json_deserialization = True
    dialect_injects_custom_json_deserializer = True

    colspecs = {
        **{generic: own for generic, own in PGDialect.colspecs.items() if generic is not types.Enum},
        types.Numeric: _NumericType,
        types.Float: _FloatType,
        types.String: _String,
        types.Enum: _Enum,
        types.Integer: _Integer,
        types.SmallInteger: _SmallInteger,
        types.BigInteger: _BigInteger,
        types.Boolean: _Boolean,
        types.Date: _Date,
        types.DateTime: _DateTime,
        types.Time: _Time,
        types.Interval: _Interval,
        postgresql.INTERVAL: _Interval,
        types.LargeBinary: _Binary,
        types.JSON.JSONIntIndexType: _JSONIndex,
        types.JSON.JSONStrIndexType: _JSONKey,
    }

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("paramstyle", self.default_paramstyle)
        super().__init__(**kwargs)
        if self._json_deserializer is not None:
            self.colspecs = {
                **self.colspecs,
                types.JSON: _DeserializedJSON,
                postgresql.JSON: _DeserializedJSON,
                postgresql.JSONB: _DeserializedJSONB,
            }
        # The first connection to the database in memory, which lives as long as the engine.
        self._first: seracdb.Connection | None = None
        self._opening = threading.Lock()

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return seracdb

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        # Connections to a database in memory are sessions of one database, like any others.
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        if url.host or url.port or url.username or url.password:
            raise exc.ArgumentError(
                "a URL of SeracDB names a folder, as in seracdb:////path/of/folder; a server is reached by "
                "the dialect of PostgreSQL"
            )
        try:
            options = _url.options(url.query)
        except ValueError as error:
            raise exc.ArgumentError(str(error)) from None
        # The code that calls is SQLAlchemy's.
        return (url.database or _MEMORY,), {"scan_variables": False, **options}

    def connect(self, *arguments: Any, **options: Any) -> Any:
        if arguments != (_MEMORY,):
            return seracdb.connect(*arguments, **options)
        with self._opening:
            if self._first is None:
                self._first = seracdb.connect(_MEMORY, **{**options, "read_only": False})
            return self._first.connect(read_only=options.get("read_only", False))

    def get_isolation_level_values(self, dbapi_conn: DBAPIConnection) -> list[IsolationLevel]:
        return ["AUTOCOMMIT", "READ COMMITTED", "READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE"]

    def set_isolation_level(self, dbapi_connection: Any, level: IsolationLevel) -> None:
        dbapi_connection.autocommit = level == "AUTOCOMMIT"
        if level != "AUTOCOMMIT":
            self._set_modes(dbapi_connection, f"ISOLATION LEVEL {level}")

    def get_isolation_level(self, dbapi_connection: Any) -> IsolationLevel:
        if dbapi_connection.autocommit:
            return "AUTOCOMMIT"
        return self._show(dbapi_connection, "transaction_isolation").upper()  # type: ignore[return-value]

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return bool(dbapi_conn.autocommit)

    def set_readonly(self, connection: Any, value: bool) -> None:
        self._set_modes(connection, "READ ONLY" if value else "READ WRITE")

    def get_readonly(self, connection: Any) -> bool:
        return self._show(connection, "transaction_read_only") == "on"

    def set_deferrable(self, connection: Any, value: bool) -> None:
        self._set_modes(connection, "DEFERRABLE" if value else "NOT DEFERRABLE")

    def get_deferrable(self, connection: Any) -> bool:
        return self._show(connection, "transaction_deferrable") == "on"

    @staticmethod
    def _set_modes(connection: Any, modes: str) -> None:
        """Sets modes of the transactions that the connection will begin."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION {modes}")

    @staticmethod
    def _show(connection: Any, setting: str) -> str:
        with connection.cursor() as cursor:
            (value,) = cursor.execute(f"SHOW {setting}").fetchone()
        return str(value)

    # Constraints have no comments, so reflection tells none.

    def get_multi_pk_constraint(self, *arguments: Any, **kw: Any) -> Any:
        return _without_comments(super().get_multi_pk_constraint(*arguments, **kw))

    def get_multi_foreign_keys(self, *arguments: Any, **kw: Any) -> Any:
        return _without_comments(super().get_multi_foreign_keys(*arguments, **kw))

    def get_multi_unique_constraints(self, *arguments: Any, **kw: Any) -> Any:
        return _without_comments(super().get_multi_unique_constraints(*arguments, **kw))

    def get_multi_check_constraints(self, *arguments: Any, **kw: Any) -> Any:
        return _without_comments(super().get_multi_check_constraints(*arguments, **kw))

    def get_multi_indexes(self, connection: Any, **kw: Any) -> Any:
        """The indexes, without those that foreign keys have brought along, and that go with
        them."""
        found = dict(super().get_multi_indexes(connection, **kw))
        suspects = [index["name"] for indexes in found.values() for index in indexes if _OF_KEY.search(index["name"])]
        if suspects:
            keys = dict(self.get_multi_foreign_keys(connection, **kw))
            for table, indexes in found.items():
                columns = {key["name"]: key["constrained_columns"] for key in keys.get(table, ())}
                indexes[:] = [index for index in indexes if not _is_of_key(index, columns)]
        return found.items()

    def do_ping(self, dbapi_connection: Any) -> bool:
        with dbapi_connection.cursor() as cursor:
            cursor.execute(self._dialect_specific_select_one)
        # In the transaction of that query the isolation level could not be set.
        dbapi_connection.rollback()
        return True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return isinstance(e, seracdb.InterfaceError) and connection is not None and bool(connection.closed)


dialect = SeracdbDialect
