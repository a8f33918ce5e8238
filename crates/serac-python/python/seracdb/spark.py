"""PySpark: ``spark.read.format("seracdb")``.

>>> seracdb.spark.register(spark)
>>> options = {"url": "grpc://127.0.0.1:8815", "table": "lineitem", "partitions": 8}
>>> frame = spark.read.format("seracdb").options(**options).load()

A frame's first action takes a snapshot on the server. The frame, and all that is made of it, reads
that snapshot, also in later actions. The program holds it until :func:`release`, or until the
program ends. A new ``load()`` reads a newer snapshot.

>>> with seracdb.remote.plan("grpc://127.0.0.1:8815", table="lineitem", partitions=8) as plan:
...     seracdb.spark.read(spark, plan).count()

holds it for the block alone.

Spark's workers need this package and pyarrow.

Spark tells a Python source no columns, so name those that you need: by ``columns``, or by
``spark.read.schema``. It would tell conditions. But Spark 4.3.0 keeps what a source has made of the
conditions of one query for the next query of the same frame, and so leaves out rows that belong to
it. So this source takes none from Spark: ``filter`` says what the server tests.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import dataclasses
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from seracdb._errors import InterfaceError, NotSupportedError, OperationalError, ProgrammingError
from seracdb.remote import Lease, Partition, Plan, Request, Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SeracDataSource", "SeracReader", "read", "register", "release"]

_OPTIONS = ("url", "table", "schema", "query", "columns", "filter", "partitions", "token", "tls_roots", "locations")
#: The options of :func:`read`: a plan that the program holds.
_PLAN = ("plan", "token", "tls_roots")


class _Keeper:
    """Holds the snapshots of frames in the process that has the session.

    Spark plans a read in another process, which ends when it likes. That process hands the
    snapshot over through a socket in a folder that only this user may enter.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="seracdb-")
        self.address = os.path.join(self._folder.name, "keeper")
        self._lock = threading.Lock()
        self._plans: list[Plan] = []
        self._process = os.getpid()
        self._closed = threading.Event()
        self._listener = connection.Listener(self.address, "AF_UNIX", backlog=64)
        # Before the folder goes.
        atexit.register(self._close)
        threading.Thread(target=self._listen, name="seracdb-keeper", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether this is its process, and not a fork."""
        return self._process == os.getpid()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                with self._listener.accept() as planner:
                    plan = Plan(pa.schema([]), [], planner.recv())
                    with self._lock:
                        self._plans.append(plan)
                    planner.send(True)
            except Exception:
                # A planner has gone away or has sent no leases, or there are too many files or
                # threads: not without end at once. Other planners wait for this thread.
                self._closed.wait(0.01)

    def _close(self) -> None:
        if self.alive:
            self._closed.set()
            self._listener.close()
            self.release()

    def release(self) -> None:
        with self._lock:
            plans, self._plans = self._plans, []
        for plan in plans:
            plan.close()


_keeper: _Keeper | None = None


def register(spark: SparkSession) -> None:
    """Lets the session read by ``format("seracdb")``. This process holds the snapshots."""
    global _keeper
    if _keeper is None or not _keeper.alive:
        _keeper = _Keeper()
    # Of a class that is made here, and not imported, Spark takes the attributes along.
    source = type("SeracDataSource", (SeracDataSource,), {"keeper": _keeper.address})
    spark.dataSource.register(source)


def release() -> None:
    """Lets the snapshots of all frames go that ``load()`` has given to this process. An action of
    such a frame raises OperationalError (72000) then."""
    if _keeper is not None and _keeper.alive:
        _keeper.release()


def read(spark: SparkSession, plan: Plan) -> DataFrame:
    """The frame of a plan. It can be read until the plan is closed."""
    if plan.closed:
        raise InterfaceError("the plan is closed: its snapshot is not held any more")
    register(spark)
    servers = list(dict.fromkeys(partition.server for partition in plan.partitions))
    parts = [
        (servers.index(part.server), part.ticket and base64.b64encode(part.ticket).decode(), part.query, part.locations)
        for part in plan.partitions
    ]
    columns = base64.b64encode(plan.schema.serialize().to_pybytes()).decode()
    options = {"plan": json.dumps({"servers": [each.url for each in servers], "parts": parts, "columns": columns})}
    if servers[0].token is not None:
        options["token"] = servers[0].token
    if servers[0].tls_roots is not None:
        options["tls_roots"] = servers[0].tls_roots.decode()
    return spark.read.format("seracdb").options(**options).load()


class SeracDataSource(DataSource):
    """The source of ``format("seracdb")``.

    Options are :func:`seracdb.remote.plan`'s. ``url`` may have several addresses, with commas
    between them. ``columns`` are names with commas between them, or a list in JSON. ``filter`` is
    ``[[column, operator, value], …]`` in JSON, with dates, times and decimals as texts.
    ``tls_roots`` is a file on the driver's machine.
    """

    #: The socket of the process that holds snapshots.
    keeper: str | None = None

    @classmethod
    def name(cls) -> str:
        return "seracdb"

    def schema(self) -> StructType:
        columns = _Held(self.options).columns if "plan" in self.options else _request(self.options).columns_now()
        return _spark_schema(columns)

    def reader(self, schema: StructType) -> SeracReader:
        if "plan" in self.options:
            held = _Held(self.options)
            _check(schema, held.columns)
            return SeracReader(schema, held.partitions)
        request = _request(self.options)
        if request.query is None:
            # All columns of the source, or those that spark.read.schema names.
            request = dataclasses.replace(request, columns=tuple(schema.fieldNames()))
        _check(schema, request.columns_now())
        return SeracReader(schema, request, self.keeper)


class SeracReader(DataSourceReader):
    """A read of a snapshot, which is taken when Spark asks for the partitions."""

    def __init__(
        self, schema: StructType, source: Request | tuple[Partition, ...], keeper: str | None = None
    ) -> None:
        self._columns = to_arrow_schema(schema, timezone="UTC")
        self._source = source
        self._keeper = keeper

    def partitions(self) -> list[InputPartition]:
        if not isinstance(self._source, Request):
            return [InputPartition(partition) for partition in self._source]
        _, partitions, leases = self._source.hold()
        if leases:
            _hand_over(leases, self._keeper)
        return [InputPartition(partition) for partition in partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        columns = self._columns
        for batch in partition.value.read():
            if not len(columns):
                # Made of no arrays, it would have no rows.
                yield batch.select([])
                continue
            arrays = [batch.column(field.name).cast(field.type) for field in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _hand_over(leases: list[Lease], keeper: str | None) -> None:
    """Gives snapshots to the process that registered the source."""
    try:
        if keeper is None:
            raise InterfaceError(
                "nobody would hold the snapshot: register the source by seracdb.spark.register(spark), "
                "or read a plan by seracdb.spark.read(spark, plan)"
            )
        try:
            with connection.Client(keeper, "AF_UNIX") as program:
                program.send(leases)
                program.recv()
        except (OSError, EOFError) as error:
            message = f"the program that has called seracdb.spark.register is not there: {error}"
            raise OperationalError(message, sqlstate="08006") from error
    except BaseException:
        for lease in leases:
            lease.release()
        raise


class _Held:
    """What :func:`read` has put into options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        _known(options, _PLAN)
        plan = json.loads(options["plan"])
        roots = options["tls_roots"].encode() if "tls_roots" in options else None
        servers = [Server(url, options.get("token"), roots) for url in plan["servers"]]
        self.columns = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(plan["columns"])))
        self.partitions = tuple(
            Partition(servers[at], ticket and base64.b64decode(ticket), query, tuple(locations))
            for at, ticket, query, locations in plan["parts"]
        )


def _known(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    unknown = [name for name in options if name.lower() not in known]
    if unknown:
        raise InterfaceError(f"seracdb knows no option {', '.join(unknown)}: there are {', '.join(known)}")


def _request(options: Mapping[str, str]) -> Request:
    _known(options, _OPTIONS)
    roots = options.get("tls_roots")
    content = None if roots is None else Path(roots).read_bytes()
    urls, locations = (
        [part.strip() for part in options.get(name, "").split(",") if part.strip()] for name in ("url", "locations")
    )
    columns = options.get("columns")
    partitions = options.get("partitions")
    try:
        conditions = tuple((name, operator, value) for name, operator, value in json.loads(options.get("filter", "[]")))
    except (TypeError, ValueError):
        raise InterfaceError("filter is a list [[column, operator, value], …] in JSON") from None
    try:
        names = None if columns is None else tuple(_names(columns))
        count = None if partitions is None else int(partitions)
    except ValueError as error:
        raise InterfaceError(f"columns are names, and partitions is a number: {error}") from None
    return Request(
        tuple(Server(url, options.get("token"), content, tuple(locations)) for url in urls),
        options.get("table"),
        options.get("schema", "public"),
        options.get("query"),
        names,
        conditions,
        count,
    )


def _names(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    names = json.loads(text)
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a name is a text")
    return names


def _spark_schema(columns: pa.Schema) -> StructType:
    """The columns in Spark's types. Raises NotSupportedError for what Spark lacks."""
    names = columns.names
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ProgrammingError(f"two columns have the name {', '.join(twice)}", sqlstate="42701")
    return StructType([StructField(field.name, _spark_type(field), field.nullable) for field in columns])


def _spark_type(field: pa.Field) -> Any:
    # Spark 4.3 has a type for times, and by default refuses it.
    if not pa.types.is_time(field.type):
        with contextlib.suppress(PySparkTypeError):
            return from_arrow_type(field.type)
    message = f'Spark has no type for column "{field.name}" ({field.type})'
    raise NotSupportedError(message, sqlstate="0A000", hint="Leave it out: name the others in the option columns.")


def _check(schema: StructType, columns: pa.Schema) -> None:
    """Refuses a schema that does not describe the columns."""
    theirs = {field.name: field for field in _spark_schema(columns)}
    for field in schema:
        own = theirs.get(field.name)
        if own is None or own.dataType != field.dataType or (own.nullable and not field.nullable):
            said, there = field.simpleString(), "no such column" if own is None else own.simpleString()
            raise ProgrammingError(f"the schema says {said}, the server has {there}", sqlstate="42804")
