"""The backend of Ibis: ``ibis.seracdb.connect("/path/of/folder")``.

Expressions are compiled as they are for PostgreSQL, but for what :class:`SeracdbCompiler` says.
Results come as Arrow. Frames in memory go into temporary tables by ``con.append``. What Ibis calls
a database is a schema.
"""

from __future__ import annotations

import collections
import contextlib
import json
import sys
import uuid
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import ibis
import ibis.common.exceptions as exc
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.schema as sch
import ibis.expr.types as ir
import sqlglot as sg
import sqlglot.expressions as sge
from ibis import util
from ibis.backends import (
    CanCreateDatabase,
    CanListCatalog,
    HasCurrentCatalog,
    HasCurrentDatabase,
    PyArrowExampleLoader,
    SupportsTempTables,
)
from ibis.backends.sql import SQLBackend, compilers
from ibis.backends.sql.compilers.base import NULL
from ibis.backends.sql.compilers.postgres import PostgresCompiler
from ibis.backends.sql.dialects import Postgres
from ibis.backends.sql.rewrites import lower_sample

import seracdb
from seracdb import _url

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: The schema of temporary tables.
_TEMPORARY = "pg_temp"


class Seracdb(Postgres):
    """PostgreSQL's dialect under SeracDB's name: sqlglot knows dialects by the names of classes."""


class SeracdbCompiler(PostgresCompiler):
    """PostgreSQL's SQL, where SeracDB's is the same."""

    __slots__ = ()

    UNSUPPORTED_OPS = (
        # hashtextextended and its kin are not there.
        ops.Hash,
    )
    SIMPLE_OPS = {ops.Arbitrary: "any_value"}
    # There is no TABLESAMPLE: rows are chosen by random().
    LOWERED_OPS: dict[Any, Any] = {ops.Sample: lower_sample(supported_methods=())}

    def visit_First(self, op: Any, *, arg: Any, where: Any, order_by: Any, include_null: bool) -> Any:
        values = self._values(arg, where, order_by, include_null)
        return sge.Bracket(this=sge.paren(values, copy=False), expressions=[sge.convert(1)], offset=1)

    def visit_Last(self, op: Any, *, arg: Any, where: Any, order_by: Any, include_null: bool) -> Any:
        values = self._values(arg, where, order_by, include_null)
        last = self.f.cardinality(values.copy())
        return sge.Bracket(this=sge.paren(values, copy=False), expressions=[last], offset=1)

    def _values(self, arg: Any, where: Any, order_by: Any, include_null: bool) -> Any:
        """The values of a group as an array."""
        if not include_null:
            there = arg.is_(sg.not_(NULL, copy=False))
            where = there if where is None else sge.And(this=where, expression=there)
        return self.agg.array_agg(arg, where=where, order_by=order_by)

    def visit_MultiQuantile(self, op: Any, *, arg: Any, quantile: Any, where: Any) -> Any:
        # percentile_cont of an array is not there: an array of percentiles is.
        if not isinstance(op.quantile, ops.Literal):
            raise exc.UnsupportedOperationError("the quantiles must be constants")
        each = (self.visit_Quantile(op, arg=arg, quantile=sge.convert(q), where=where) for q in op.quantile.value)
        return self.f.array(*each)

    visit_ApproxMultiQuantile = visit_MultiQuantile

    def visit_MapValues(self, op: Any, *, arg: Any) -> Any:
        # As the type of the map's values, not as JSON.
        each = sg.to_identifier(util.gen_name("each"))
        value = sge.Dot(this=each, expression=sg.to_identifier("value", quoted=True))
        values = sg.select(self.cast(value, op.dtype.value_type)).from_(self.f.jsonb_each_text(arg).as_(each))
        return self.if_(arg.is_(NULL), NULL, self.f.array(values))

    def _compile_python_udf(self, udf_node: ops.ScalarUDF) -> None:
        raise exc.UnsupportedOperationError("functions written in Python are not supported in expressions of SeracDB")


compiler = SeracdbCompiler()
# Where Ibis looks for the compilers of dialects, as of ibis.to_sql(…, dialect="seracdb").
compilers.seracdb = sys.modules[__name__]


class Backend(
    SupportsTempTables,
    SQLBackend,
    CanListCatalog,
    CanCreateDatabase,
    HasCurrentCatalog,
    HasCurrentDatabase,
    PyArrowExampleLoader,
):
    """A connection of Ibis to a database of SeracDB."""

    name = "seracdb"
    compiler = compiler
    supports_python_udfs = False

    con: seracdb.Connection

    def _from_url(self, url: Any, **options: Any) -> Backend:
        """``seracdb:///folder``, ``seracdb:////path/of/folder``, ``seracdb://``."""
        if url.netloc:
            raise exc.IbisInputError("a URL of SeracDB names a folder, as in seracdb:////path/of/folder")
        path = url.path[1:] or ":memory:"
        try:
            # Ibis has added those of the query, as texts.
            texts = {name: text for name, text in options.items() if isinstance(text, str)}
            options.update(_url.options(texts))
        except ValueError as error:
            raise exc.IbisInputError(str(error)) from None
        return self.connect(path, **options)

    def do_connect(
        self,
        path: Any = ":memory:",
        *,
        durability: str | None = None,
        memory_limit: int | None = None,
        threads: int | None = None,
        read_only: bool = False,
    ) -> None:
        """Opens the database in the folder ``path``, or one in memory: ``seracdb.connect``.

        Each statement is a transaction of its own.
        """
        con = seracdb.connect(
            path,
            durability=durability,
            memory_limit=memory_limit,
            threads=threads,
            read_only=read_only,
            autocommit=True,
            scan_variables=False,
        )
        self._use(con)

    @util.experimental
    @classmethod
    def from_connection(cls, con: seracdb.Connection, /) -> Backend:
        """A client on a connection that is open already, with its transaction."""
        backend = cls()
        backend._can_reconnect = False
        backend._use(con)
        return backend

    def _use(self, con: seracdb.Connection) -> None:
        self.con = con
        # Names of temporary tables whose frames are gone. They are dropped before the next
        # expression runs: a frame may go while a statement runs.
        self._forgotten: collections.deque[str] = collections.deque()

    @property
    def version(self) -> str:
        return seracdb.__version__

    # ---- statements

    def raw_sql(self, query: str | sge.Expression, **kwargs: Any) -> seracdb.Cursor:
        """Runs a statement. Returns a cursor of DB-API."""
        text = query if isinstance(query, str) else query.sql(dialect=self.dialect)
        return self.con.execute(text, **kwargs)

    @contextlib.contextmanager
    def _safe_raw_sql(self, query: str | sge.Expression, **kwargs: Any) -> Iterator[seracdb.Cursor]:
        with self.raw_sql(query, **kwargs) as cursor:
            yield cursor

    def _quoted(self, name: str, database: str | None = None) -> str:
        return sg.table(name, db=database, quoted=True).sql(self.dialect)

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.con.execute(query, parameters or None).fetchall()

    # ---- what there is

    @property
    def current_catalog(self) -> str:
        ((name,),) = self._rows("SELECT current_database()")
        return str(name)

    def list_catalogs(self, *, like: str | None = None) -> list[str]:
        return self._filter_with_like([self.current_catalog], like)

    @property
    def current_database(self) -> str:
        ((name,),) = self._rows("SELECT current_schema()")
        return str(name)

    def list_databases(self, *, like: str | None = None, catalog: str | None = None) -> list[str]:
        self._check_catalog(catalog)
        return self._filter_with_like((name for (name,) in self._rows("SELECT nspname FROM pg_namespace")), like)

    def list_tables(self, *, like: str | None = None, database: tuple[str, str] | str | None = None) -> list[str]:
        """Names of tables and views; without ``database``, those of the current one and
        temporary ones."""
        schema = self._schema(database)
        schemas = [self.current_database, _TEMPORARY] if schema is None else [schema]
        query = (
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE relkind IN ('r', 'v', 'm') AND nspname = ANY ($1)"
        )
        return self._filter_with_like((name for (name,) in self._rows(query, schemas)), like)

    def create_database(self, name: str, /, *, catalog: str | None = None, force: bool = False) -> None:
        self._check_catalog(catalog)
        self._run(sge.Create(kind="SCHEMA", this=sg.table(name, quoted=True), exists=force))

    def drop_database(
        self, name: str, /, *, catalog: str | None = None, force: bool = False, cascade: bool = False
    ) -> None:
        self._check_catalog(catalog)
        self._run(sge.Drop(kind="SCHEMA", this=sg.table(name, quoted=True), exists=force, cascade=cascade))

    def get_schema(self, name: str, *, catalog: str | None = None, database: str | None = None) -> sch.Schema:
        self._check_catalog(catalog)
        schemas = [_TEMPORARY, self.current_database] if database is None else [database]
        query = (
            "SELECT nspname, attname, format_type(atttypid, atttypmod), NOT attnotnull "
            "FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE attnum > 0 AND relkind IN ('r', 'v', 'm') AND relname = $1 AND nspname = ANY ($2) "
            "ORDER BY attnum"
        )
        found: dict[str, dict[str, dt.DataType]] = collections.defaultdict(dict)
        for schema, column, type_name, nullable in self._rows(query, name, schemas):
            found[schema][column] = self.compiler.type_mapper.from_string(type_name, nullable=nullable)
        for schema in schemas:
            if schema in found:
                return sch.Schema(found[schema])
        # A table may have no columns.
        if name in self.list_tables(database=database):
            return sch.Schema({})
        raise exc.TableNotFound(name)

    def _get_schema_using_query(self, query: str) -> sch.Schema:
        with self._safe_raw_sql(f"SELECT * FROM (\n{query}\n) AS _ LIMIT 0") as cursor:
            columns = cursor.description or []
        names: dict[str, dt.DataType] = {}
        for name, oid, _, _, precision, scale, nullable in columns:
            # The modifier of NUMERIC(precision, scale), as PostgreSQL has it.
            modifier = -1 if precision is None or scale is None else (precision << 16 | scale) + 4
            ((type_name,),) = self._rows("SELECT format_type($1::oid, $2)", oid, modifier)
            names[name] = self.compiler.type_mapper.from_string(type_name, nullable=nullable)
        return sch.Schema(names)

    def _schema(self, database: tuple[str, str] | str | None) -> str | None:
        catalog, schema = self._to_catalog_db_tuple(self._to_sqlglot_table(database))
        self._check_catalog(catalog)
        return schema

    def _check_catalog(self, catalog: str | None) -> None:
        if catalog is not None and catalog != self.current_catalog:
            raise exc.UnsupportedOperationError(f"there is no catalog but {self.current_catalog!r}")

    def _run(self, statement: str | sge.Expression) -> None:
        with self._safe_raw_sql(statement):
            pass

    # ---- tables

    def create_table(
        self,
        name: str,
        /,
        obj: Any = None,
        *,
        schema: sch.IntoSchema | None = None,
        database: str | None = None,
        temp: bool = False,
        overwrite: bool = False,
    ) -> ir.Table:
        """Makes a table, with the rows of ``obj``: an expression, or a frame of pandas, Polars or
        Arrow.

        With ``overwrite`` a table of that name is replaced; otherwise it is an error.
        """
        if temp and database is not None:
            raise exc.UnsupportedArgumentError("temporary tables are in a schema of their own")
        table = obj if obj is None or isinstance(obj, ir.Expr) else ibis.memtable(obj, schema=schema)
        if schema is not None:
            columns = sch.schema(schema)
        elif table is not None:
            columns = table.schema()
        else:
            raise ValueError("either obj or schema must be given")
        if table is not None:
            self._run_pre_execute_hooks(table)
        place = _TEMPORARY if temp else self._schema(database)
        made = sg.table(name, db=place, quoted=True)
        # A query may read the table that it replaces.
        target = sg.table(util.gen_name(name), db=place, quoted=True) if overwrite else made
        with self.con.transaction():
            self._run(self._definition(target, columns, temp))
            if table is not None:
                self._run(sge.Insert(this=target, expression=self._cast(table, columns)))
            if overwrite:
                self._run(sge.Drop(kind="TABLE", this=made, exists=True))
                new = sg.to_identifier(name, quoted=True).sql(self.dialect)
                self._run(f"ALTER TABLE {target.sql(self.dialect)} RENAME TO {new}")
        return self.table(name, database=place)

    def _definition(self, table: sge.Table, columns: sch.Schema, temp: bool) -> sge.Create:
        properties = sge.Properties(expressions=[sge.TemporaryProperty()]) if temp else None
        # The schema of temporary tables is not named where they are made.
        this = sg.table(table.name, quoted=True) if temp else table
        definitions = columns.to_sqlglot_column_defs(self.dialect)
        return sge.Create(kind="TABLE", this=sge.Schema(this=this, expressions=definitions), properties=properties)

    def _cast(self, table: ir.Table, columns: sch.Schema) -> sge.Select:
        """The rows of a table, as those columns have their types."""
        query = self.compiler.to_sqlglot(table)
        if table.schema() == columns:
            return query
        values = (
            self.compiler.cast(sg.column(old, table="_", quoted=True), dtype).as_(new, quoted=True)
            for old, (new, dtype) in zip(table.columns, columns.items())
        )
        return sg.select(*values).from_(query.subquery("_"))

    def rename_table(self, old_name: str, new_name: str) -> None:
        self._run(f"ALTER TABLE {self._quoted(old_name)} RENAME TO {self._quoted(new_name)}")

    def _register_in_memory_table(self, op: ops.InMemoryTable) -> None:
        if nulls := op.schema.null_fields:
            raise exc.IbisTypeError(f"columns must have types, and these have none: {', '.join(nulls)}")
        table = sg.table(op.name, db=_TEMPORARY, quoted=True)
        frame = op.data.to_pyarrow(op.schema)
        with self.con.transaction():
            self._run(self._definition(table, op.schema, temp=True))
            self.con.append(op.name, frame, schema=_TEMPORARY)
        weakref.finalize(op, self._forgotten.append, op.name).atexit = False

    def _run_pre_execute_hooks(self, expr: ir.Expr) -> None:
        while self._forgotten:
            self._run(f"DROP TABLE IF EXISTS {self._quoted(self._forgotten.popleft(), _TEMPORARY)}")
        super()._run_pre_execute_hooks(expr)

    # ---- results

    def to_pyarrow_batches(
        self,
        expr: ir.Expr,
        /,
        *,
        params: Mapping[ir.Scalar, Any] | None = None,
        limit: int | str | None = None,
        chunk_size: int = 1_000_000,
        **_: Any,
    ) -> pa.ipc.RecordBatchReader:
        """The rows as Arrow, in batches of at most ``chunk_size`` rows, as they come."""
        import pyarrow as pa

        self._run_pre_execute_hooks(expr)
        schema = expr.as_table().schema()
        cursor = self.raw_sql(self.compile(expr, params=params, limit=limit))
        types = schema.to_pyarrow()

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in cursor.reader():
                for start in range(0, batch.num_rows, chunk_size):
                    part = batch.slice(start, chunk_size)
                    columns = [_as(column, field.type) for column, field in zip(part.columns, types)]
                    yield pa.RecordBatch.from_arrays(columns, schema=types)

        return pa.RecordBatchReader.from_batches(types, batches())

    def execute(
        self,
        expr: ir.Expr,
        /,
        *,
        params: Mapping[ir.Scalar, Any] | None = None,
        limit: int | str | None = None,
        **kwargs: Any,
    ) -> pd.DataFrame | pd.Series | Any:
        """The result as pandas has it: a frame, a series, or a value."""
        from ibis.formats.pandas import PandasData

        table = expr.as_table()
        reader = self.to_pyarrow_batches(table, params=params, limit=limit, **kwargs)
        frame = reader.read_all().to_pandas(timestamp_as_object=True)
        return expr.__pandas_result__(PandasData.convert_table(frame, table.schema()))


# Units of durations as nanoseconds.
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NANOSECONDS_OF_DAY = 86_400_000_000_000


def _as(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column of a result, of the type that Ibis has for it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    have = column.type
    if have == wanted:
        return column
    if isinstance(wanted, pa.BaseExtensionType):
        return wanted.wrap_array(_as(column, wanted.storage_type))
    if pa.types.is_fixed_size_binary(have) and pa.types.is_string(wanted):
        texts = (None if value is None else str(uuid.UUID(bytes=value)) for value in column.to_pylist())
        return pa.array(texts, wanted)
    if have == pa.month_day_nano_interval() and pa.types.is_duration(wanted):
        counts = (None if value is None else _duration(value, wanted.unit) for value in column.to_pylist())
        return pa.array(counts, pa.int64()).cast(wanted)
    if pa.types.is_decimal(wanted) and (pa.types.is_floating(have) or pa.types.is_decimal(have)):
        return pc.round(column, wanted.scale).cast(wanted)
    if have == pa.string_view() and pa.types.is_integer(wanted):
        # A NUMERIC without a precision.
        return _as(column.cast(pa.decimal128(38, 10)), wanted)
    if pa.types.is_decimal(have) and pa.types.is_integer(wanted):
        return column.cast(options=pc.CastOptions(wanted, allow_decimal_truncate=True))
    if wanted == pa.month_day_nano_interval() and pa.types.is_integer(have):
        # The days between two dates.
        days = (None if value is None else pa.MonthDayNano([0, value, 0]) for value in column.to_pylist())
        return pa.array(days, wanted)
    if pa.types.is_null(wanted):
        return pa.nulls(len(column))
    if pa.types.is_map(wanted):
        # A map is an object of JSON.
        objects = (None if text is None else list(json.loads(text).items()) for text in column.to_pylist())
        return pa.array(objects, wanted)
    if pa.types.is_float16(wanted):
        return column.cast(pa.float32()).cast(wanted)
    return column.cast(wanted)


def _duration(interval: Any, unit: str) -> int:
    """An interval as a number of units. A month has no fixed length."""
    if interval.months:
        raise seracdb.DataError("an interval with months is no duration", sqlstate="22008")
    nanoseconds = interval.days * _NANOSECONDS_OF_DAY + interval.nanoseconds
    return int(nanoseconds // _NANOSECONDS[unit])
