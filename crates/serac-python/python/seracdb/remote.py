"""Tables of a server as Arrow, read in parts by many processes: Spark, Ray, Dask and Daft.

>>> with seracdb.remote.plan("grpc://127.0.0.1:8815", table="lineitem", partitions=8) as plan:
...     for partition in plan.partitions:
...         for batch in partition.read():
...             print(batch.num_rows)

The program that plans holds one snapshot of the table on the server. The plan's partitions are
ranges of the table's blocks in that snapshot. They can be pickled, and any process reads them with
pyarrow, once or several times, in any order.

A server lets go of a snapshot after some time (``serac serve --lease``, 60 seconds). So a thread of
the planning process renews it until :meth:`Plan.close`, until the plan is garbage, or until the
process ends. Where the snapshot has been lost, reading raises OperationalError with SQLSTATE 72000:
other partitions may have been read, so none is read from a newer snapshot.

``seracdb.spark``, ``seracdb.ray``, ``seracdb.dask`` and ``seracdb.daft`` stand on this.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import threading
import time
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seracdb._conditions import conditions
from seracdb._errors import (
    DatabaseError,
    Error,
    InterfaceError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    of_sqlstate,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.flight as flight

__all__ = ["Lease", "Partition", "Plan", "Request", "Server", "plan", "plan_of"]

#: Seconds that a call may take which sends no rows, and one that is about a snapshot: others wait
#: for that.
_CALL_SECONDS = 60.0
_LEASE_SECONDS = 5.0
#: The least and the most seconds between two renewals of a snapshot.
_RENEWAL_SECONDS = (0.1, 10.0)
#: The SQLSTATE with which the message of a query's error begins.
_STATED = re.compile("([0-9A-Z]{5}): ")
#: An address that a server may name: its scheme, host and port.
_ADDRESS = re.compile(r"(grpc(?:\+tcp|\+tls)?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", re.ASCII)
#: The most locations of an endpoint that are looked at, and the most that are used.
_MOST_LOCATIONS = (64, 8)
_REUSED = "arrow-flight-reuse-connection:"
#: Texts come with offsets, which all engines know.
_HEADERS = [(b"serac-strings", b"utf8")]


@dataclasses.dataclass(frozen=True)
class Server:
    """Where a server is, and what it wants to see."""

    #: ``grpc://host:port``, with TLS ``grpc+tls://host:port``.
    url: str
    #: The server's token, or one that a handshake gave.
    token: str | None = dataclasses.field(default=None, repr=False)
    #: Certificates (PEM) that are trusted; those of the system if ``None``.
    tls_roots: bytes | None = dataclasses.field(default=None, repr=False)
    #: Further addresses at which the server may say that its tables are read. They get the token.
    locations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for location in self.locations:
            if _address(location) is None:
                raise InterfaceError(f"{location!r} is no location: grpc://host:port, or grpc+tls://host:port")
        if not self.url.startswith(("grpc://", "grpc+tcp://", "grpc+tls://", "grpc+unix://")):
            raise InterfaceError(f"{self.url!r} is no address: grpc://host:port, or with TLS grpc+tls://host:port")

    def connect(self) -> flight.FlightClient:
        """A client. It connects at its first call."""
        import pyarrow.flight

        # A peer that has vanished without a word is found out.
        pings = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 30_000)]
        return pyarrow.flight.connect(self.url, tls_root_certs=self.tls_roots, generic_options=pings)

    def allows(self, location: str) -> bool:
        """Whether the token may go to a location that the server names: ``locations`` has it, or it
        is on the host of ``url``, and has TLS if that has."""
        named, asked = _address(location), _address(self.url)
        if named is None:
            return False
        is_beside = asked is not None and named[1] == asked[1] and (named[0] or not asked[0])
        return is_beside or any(named == _address(allowed) for allowed in self.locations)

    def options(self, seconds: float | None = _CALL_SECONDS) -> flight.FlightCallOptions:
        """What goes with each call; ``seconds`` that it may take."""
        import pyarrow.flight

        headers = list(_HEADERS)
        if self.token is not None:
            headers.append((b"authorization", b"Bearer " + self.token.encode()))
        return pyarrow.flight.FlightCallOptions(timeout=seconds, headers=headers)


@dataclasses.dataclass(frozen=True)
class Partition:
    """A part of a plan's rows. It can be pickled, and has the token of its server."""

    server: Server
    #: What DoGet takes; ``None`` for a query, which each reader runs anew.
    ticket: bytes | None = dataclasses.field(default=None, repr=False)
    #: The query of which this is the only partition.
    query: str | None = None
    #: Where it is read; at the server if it cannot be read there.
    locations: tuple[str, ...] = ()

    def read(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows, as they come from the server.

        Raises OperationalError if the server is not there (08006) or the snapshot is lost (72000).
        """
        for url in self.locations:
            batches = self._read(dataclasses.replace(self.server, url=url))
            try:
                first = next(batches, None)
            except DatabaseError:
                # What is wrong, the server says better.
                continue
            with contextlib.closing(batches):
                if first is not None:
                    yield first
                    yield from batches
            return
        yield from self._read(self.server)

    def _read(self, server: Server) -> Generator[pa.RecordBatch, None, None]:
        import pyarrow.flight

        with server.connect() as client, _named(server.url):
            ticket = self.ticket
            if ticket is None:
                descriptor = _statement(self.query or "")
                endpoints = client.get_flight_info(descriptor, server.options()).endpoints
                if not endpoints:
                    raise ProgrammingError("the statement has no rows to give", sqlstate="42601")
                ticket = endpoints[0].ticket.ticket
            stream = client.do_get(pyarrow.flight.Ticket(ticket), server.options(None))
            schema = plain_schema(stream.schema)
            ended = False
            try:
                for chunk in stream:
                    yield plain(chunk.data, schema)
                ended = True
            finally:
                if not ended:
                    stream.cancel()


class Plan:
    """Partitions that are read together, and their snapshot. Ends with its ``with`` block."""

    #: The columns. Texts have offsets, UUIDs and JSON are texts.
    schema: pa.Schema
    partitions: tuple[Partition, ...]

    def __init__(self, schema: pa.Schema, partitions: Sequence[Partition], leases: Sequence[Lease]) -> None:
        self.schema = schema
        self.partitions = tuple(partitions)
        self._leases = tuple(leases)
        # Not with bound methods: a thread that knows the plan would keep it.
        stop = threading.Event()
        self._end = weakref.finalize(self, _end, self._leases, stop, os.getpid())
        if self._leases:
            threading.Thread(target=_renew, args=(self._leases, stop), name="seracdb-renew", daemon=True).start()

    def read(self) -> pa.Table:
        """All rows, one partition after the other."""
        import pyarrow

        batches = [batch for partition in self.partitions for batch in partition.read()]
        return pyarrow.Table.from_batches(batches, schema=self.schema)

    @property
    def closed(self) -> bool:
        return not self._end.alive

    def close(self) -> None:
        """Lets the server's snapshot go. Partitions that are being read now are read to their
        end."""
        self._end()

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a plan stays in its process, whose thread renews the snapshot: send its partitions")

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<seracdb.remote.Plan of {len(self.partitions)} partitions, {state}>"


@dataclasses.dataclass(frozen=True)
class Request:
    """What to read, as :func:`plan`'s arguments say it."""

    servers: tuple[Server, ...]
    table: str | None = None
    schema: str = "public"
    query: str | None = None
    columns: tuple[str, ...] | None = None
    conditions: tuple[tuple[str, str, Any], ...] = ()
    #: The most partitions of each server.
    partitions: int | None = None

    def __post_init__(self) -> None:
        if not self.servers or (self.table is None) == (self.query is None):
            raise InterfaceError("say an address, and either a table or a query")
        if self.query is not None and (
            self.columns is not None or self.conditions or self.partitions is not None or len(self.servers) > 1
        ):
            message = "a query has one server and one partition, and says its columns and conditions itself"
            raise InterfaceError(message)
        if self.partitions is not None and not (type(self.partitions) is int and 1 <= self.partitions < 1 << 32):
            raise InterfaceError(f"{self.partitions!r} is no number of partitions")
        for each in self.conditions:
            if not isinstance(each, (tuple, list)) or len(each) != 3 or not isinstance(each[0], str):
                raise InterfaceError(f"{each!r} is no condition (column, operator, value)")

    def columns_now(self) -> pa.Schema:
        """The columns, of the first server. No snapshot is held."""
        with self.servers[0].connect() as client, _named(self.servers[0].url):
            return self._columns(client)

    def _columns(self, client: flight.FlightClient) -> pa.Schema:
        descriptor = self._command() if self.query is None else _statement(self.query)
        return plain_schema(client.get_schema(descriptor, self.servers[0].options()).schema)

    def _command(self, **more: Any) -> flight.FlightDescriptor:
        import pyarrow.flight

        command = {"schema": self.schema, "table": self.table, "strings": "utf8", **more}
        if self.columns is not None:
            command.setdefault("columns", list(self.columns))
        return pyarrow.flight.FlightDescriptor.for_command(json.dumps(command))

    def hold(self) -> tuple[pa.Schema, list[Partition], list[Lease]]:
        """The columns, the partitions, and the snapshots that the servers hold from now on."""
        if self.query is not None:
            return self.columns_now(), [Partition(self.servers[0], query=self.query)], []
        schema: pa.Schema | None = None
        partitions: list[Partition] = []
        leases: list[Lease] = []
        try:
            for server in self.servers:
                info = self._info(server)
                leases.append(Lease(server, info))
                with _named(server.url):
                    partitions += (
                        Partition(server, endpoint.ticket.ticket, locations=_locations(server, endpoint, number))
                        for number, endpoint in enumerate(info.endpoints)
                    )
                found = plain_schema(info.schema)
                if schema is not None and not schema.equals(found):
                    first = self.servers[0].url
                    message = f'the table "{self.table}" has other columns on {server.url} than on {first}'
                    raise ProgrammingError(message, sqlstate="42804")
                schema = found
        except BaseException:
            for lease in leases:
                lease.release()
            raise
        return schema, partitions, leases

    def _info(self, server: Server) -> flight.FlightInfo:
        with server.connect() as client, _named(server.url):
            more: dict[str, Any] = {}
            if self.conditions:
                names = list(dict.fromkeys(name for name, _, _ in self.conditions))
                compared = client.get_schema(self._command(columns=names), server.options()).schema
                more["filter"] = conditions(compared, self.conditions)
            if self.partitions is not None:
                more["endpoints"] = self.partitions
            return client.get_flight_info(self._command(**more), server.options())


def plan(
    url: str | Sequence[str],
    *,
    table: str | None = None,
    schema: str = "public",
    query: str | None = None,
    columns: Sequence[str] | None = None,
    filter: Iterable[tuple[str, str, Any]] = (),  # noqa: A002 - the server's word
    partitions: int | None = None,
    token: str | None = None,
    tls_roots: str | os.PathLike[str] | bytes | None = None,
    locations: Sequence[str] = (),
) -> Plan:
    """Plans the reading of a ``table`` of a ``schema``, or of a ``query``'s result.

    ``url`` is the server's address. Several are servers with a part of the table each; their
    snapshots are taken one after the other, so they are not one moment. ``columns`` are those
    wanted, in that order. ``filter`` has conditions ``(column, operator, value)`` which must all
    hold; the operators are = <> < <= > >=. ``partitions`` is the most that each server makes; if it
    is not said, one for 128 blocks. ``token`` is the server's. ``tls_roots`` is a file with
    certificates (PEM), or its bytes. A server may say that its tables are read at other addresses:
    those on its own host are used, with TLS if ``url`` has that, and those in ``locations``. No
    other gets the token.

    A query is one partition. It runs when that is read, each time anew, and says its columns and
    conditions itself.

    Raises OperationalError if a server is not there (08006), does not know the token (28000), or
    holds too many snapshots (53000); ProgrammingError for a table or a column that is not there;
    DataError for a value that is none of its column's type; InterfaceError for arguments that do
    not go together.
    """
    roots = tls_roots if tls_roots is None or isinstance(tls_roots, bytes) else Path(tls_roots).read_bytes()
    if isinstance(columns, str):
        raise InterfaceError(f"columns are several names, as in [{columns!r}]")
    urls, allowed = [url] if isinstance(url, str) else url, tuple(locations)
    servers = tuple(Server(each, token, roots, allowed) for each in urls)
    names = None if columns is None else tuple(columns)
    return Plan(*Request(servers, table, schema, query, names, tuple(filter), partitions).hold())


def plan_of(source: Plan | str | Sequence[str], options: dict[str, Any]) -> Plan:
    """A plan as it is, or that of an address and :func:`plan`'s other arguments."""
    if not isinstance(source, Plan):
        return plan(source, **options)
    if options:
        raise InterfaceError(f"a plan takes no options: {', '.join(options)}")
    if source.closed:
        raise InterfaceError("the plan is closed: its snapshot is not held any more")
    return source


def framed(plan: Plan, engine: str) -> Plan:
    """The plan, if frames of an engine whose columns are known by their names can have its columns.

    Raises NotSupportedError if there are none: such frames do not count their rows.
    ProgrammingError for two of one name (42701).
    """
    names = plan.schema.names
    if not names:
        raise NotSupportedError(f"{engine} counts no rows without columns", sqlstate="0A000", hint="Name a column.")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ProgrammingError(f"two columns have the name {', '.join(twice)}", sqlstate="42701")
    return plan


class Lease:
    """A snapshot that a server holds for a flight."""

    def __init__(self, server: Server, info: flight.FlightInfo) -> None:
        self.server = server
        # Of one endpoint, as all name the snapshot: a request has a bounded length.
        self._endpoint = info.endpoints[0].serialize()
        self.seconds = _seconds_until(info.endpoints[0])

    def renew(self, client: flight.FlightClient) -> None:
        """Holds it for longer. Raises OperationalError if it is lost or the server is not there."""
        import pyarrow.flight

        with _named(self.server.url):
            body = self._act(client, "RenewFlightEndpoint", self._endpoint)
            self.seconds = _seconds_until(pyarrow.flight.FlightEndpoint.deserialize(body))

    def release(self) -> None:
        """Lets it go. Where the server is not there, it goes by itself."""
        with contextlib.suppress(Error), self.server.connect() as client, _named(self.server.url):
            # Its endpoints are field 3 of a flight.
            self._act(client, "CancelFlightInfo", _field(3, self._endpoint))

    def _act(self, client: flight.FlightClient, action: str, body: bytes) -> bytes:
        import pyarrow.flight

        # Either request has the flight's message as its field 1.
        options = self.server.options(_LEASE_SECONDS)
        answers = client.do_action(pyarrow.flight.Action(action, _field(1, body)), options)
        return b"".join(answer.body.to_pybytes() for answer in answers)


def _address(url: str) -> tuple[bool, str, int] | None:
    """Whether an address has TLS, its host and its port."""
    parts = _ADDRESS.fullmatch(url)
    if parts is None or not 0 < int(parts[3]) < 1 << 16:
        return None
    return parts[1] == "grpc+tls", parts[2].lower(), int(parts[3])


def _locations(server: Server, endpoint: flight.FlightEndpoint, number: int) -> tuple[str, ...]:
    """Where an endpoint is read: the allowed ones of its locations. Endpoints of different numbers
    begin at different ones."""
    looked_at, used = _MOST_LOCATIONS
    named = [location.uri.decode(errors="replace") for location in endpoint.locations[:looked_at]]
    allowed = list(dict.fromkeys(uri for uri in named if server.allows(uri)))[:used]
    if allowed and any(uri.startswith(_REUSED) for uri in named):
        allowed = list(dict.fromkeys([*allowed, server.url]))
    first = number % len(allowed) if allowed else 0
    return (*allowed[first:], *allowed[:first])


def _seconds_until(endpoint: flight.FlightEndpoint) -> float:
    """The seconds for which the snapshot is held from now on, if the clocks agree."""
    expires = endpoint.expiration_time
    return _RENEWAL_SECONDS[1] if expires is None else expires.value / 1e9 - time.time()


def _renew(leases: Sequence[Lease], stop: threading.Event) -> None:
    """Renews the snapshots until ``stop``, or until all are lost."""
    clients = {lease: lease.server.connect() for lease in leases}
    try:
        while clients:
            least, most = _RENEWAL_SECONDS
            if stop.wait(max(least, min(most, *(lease.seconds / 3 for lease in clients)))):
                return
            for lease, client in list(clients.items()):
                try:
                    lease.renew(client)
                except Error as error:
                    # A server that is not there may come back in time. A lost snapshot does not.
                    if error.sqlstate == "72000":
                        clients.pop(lease).close()
    finally:
        for client in clients.values():
            client.close()


def _end(leases: Sequence[Lease], stop: threading.Event, process: int) -> None:
    stop.set()
    # A fork has no part in its parent's snapshots.
    if os.getpid() == process:
        for lease in leases:
            lease.release()


@contextlib.contextmanager
def _named(url: str) -> Iterator[None]:
    """Errors of Flight become this package's, with the server's address."""
    import pyarrow
    import pyarrow.flight

    try:
        yield
    except (pyarrow.flight.FlightError, pyarrow.ArrowException, OSError) as error:
        raise _error_of(url, error) from error


def _error_of(url: str, error: Exception) -> Error:
    import pyarrow.flight

    # What follows the message is gRPC's own view.
    text = str(error).partition(". gRPC client debug context:")[0].partition(". Detail:")[0]
    said = text.partition("with message: ")[2] or text
    if "snapshot is not held any more" in said:
        return OperationalError(
            f"{url} has let go of the snapshot that these rows are of",
            sqlstate="72000",
            detail=said,
            hint="Plan again, and read all partitions of the new plan. A plan that stays open renews its snapshot.",
        )
    if stated := _STATED.match(said):
        return of_sqlstate(stated[1], f"{url}: {said}")
    if isinstance(error, pyarrow.flight.FlightUnauthenticatedError):
        return OperationalError(f"{url}: {said}", sqlstate="28000")
    if isinstance(error, pyarrow.flight.FlightUnauthorizedError):
        return ProgrammingError(f"{url}: {said}", sqlstate="42501")
    if isinstance(error, KeyError):
        return ProgrammingError(f"{url}: {said}", sqlstate="42704")
    if "resource exhausted" in text:
        return OperationalError(f"{url}: {said}", sqlstate="53000", hint="Close plans that nobody reads any more.")
    if "the client read nothing for too long" in said:
        return OperationalError(f"{url} has given up a stream of which nothing was read", sqlstate="08006", detail=said)
    if isinstance(error, (pyarrow.flight.FlightUnavailableError, pyarrow.flight.FlightTimedOutError, OSError)):
        return OperationalError(f"{url} does not answer", sqlstate="08006", detail=said)
    return DatabaseError(f"{url}: {said}", sqlstate="58000")


def _field(number: int, content: bytes) -> bytes:
    """A field of a message of Protocol Buffers, with bytes, text or a message in it."""
    length, digits = len(content), bytearray([number << 3 | 2])
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    return bytes([*digits, length]) + content


def _statement(query: str) -> flight.FlightDescriptor:
    """A query as Flight SQL's command."""
    import pyarrow.flight

    kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    command = _field(1, kind) + _field(2, _field(1, query.encode()))
    return pyarrow.flight.FlightDescriptor.for_command(command)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as :func:`plain` makes them."""
    import pyarrow

    fields = [pyarrow.field(field.name, _plain_type(field.type), field.nullable) for field in schema]
    return pyarrow.schema(fields)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow
    import pyarrow.types as types

    if isinstance(kind, pyarrow.BaseExtensionType):
        kind = kind.storage_type
    if _is_uuid(kind) or types.is_string_view(kind) or types.is_large_string(kind):
        return pyarrow.string()
    if types.is_binary_view(kind):
        return pyarrow.binary()
    return kind


def _is_uuid(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    # No other type of a column has a fixed number of bytes.
    return bool(types.is_fixed_size_binary(kind)) and kind.byte_width == 16


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in types that all engines know: UUIDs and JSON as texts."""
    import pyarrow

    columns = []
    for column, kind in zip(batch.columns, schema.types, strict=True):
        array = column.storage if isinstance(column, pyarrow.ExtensionArray) else column
        if _is_uuid(array.type):
            array = _uuid_texts(array)
        columns.append(array if array.type.equals(kind) else array.cast(kind))
    if not columns:
        return batch
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _uuid_texts(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    import pyarrow
    import pyarrow.compute

    # Its functions are made when it is loaded.
    compute: Any = pyarrow.compute
    rows, data = len(array), array.buffers()[1]
    if array.null_count == rows or data is None:
        return pyarrow.nulls(rows, pyarrow.string())
    digits = memoryview(data)[array.offset * 16 :][: rows * 16].hex().encode()
    whole = pyarrow.Array.from_buffers(pyarrow.binary(32), rows, [None, pyarrow.py_buffer(digits)])
    texts = whole.cast(pyarrow.binary()).cast(pyarrow.string())
    bounds = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    parts = (compute.utf8_slice_codeunits(texts, *bound) for bound in bounds)
    return compute.if_else(array.is_valid(), compute.binary_join_element_wise(*parts, "-"), None)
