"""Reads the table `every` of tests/common with pyarrow and Polars and compares each value with what
was written.

Arguments: rows, address of the Flight service, Arrow IPC file, Arrow IPC stream, library of
examples/c_stream.rs. Prints one line per way.
"""

import ctypes
import datetime as dt
import decimal
import struct
import sys
import uuid

import polars as pl
import pyarrow as pa
import pyarrow.flight as flight

rows, address, ipc_file, ipc_stream, library = int(sys.argv[1]), *sys.argv[2:]
EPOCH = dt.datetime(1970, 1, 1)


def micros(n):
    return EPOCH + dt.timedelta(microseconds=n)


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def scaled(unscaled, scale):
    return decimal.Decimal(unscaled).scaleb(-scale, decimal.Context(prec=50))


# What tests/common writes, column by column: the ids without a value, and the value.
COLUMNS = {
    "id": (None, lambda i: i),
    "b": (3, lambda i: i % 2 == 0),
    "s": (4, lambda i: i % 60_000 - 30_000),
    "i": (5, lambda i: i * -3),
    "r": (6, lambda i: float("inf") if i % 100 == 1 else float32(float32(i) / 7)),
    "d": (7, lambda i: i / 3),
    "n": (7, lambda i: scaled(i * 1_001 - 5_000_000, 3)),
    "big": (11, lambda i: scaled(i << 64, 5)),
    "dt": (13, lambda i: EPOCH.date() + dt.timedelta(days=i - 10_000)),
    "tm": (14, lambda i: micros(i * 2_000_003 % 86_400_000_000).time()),
    "ts": (9, lambda i: micros(i * -77_000_001)),
    "tz": (8, lambda i: micros(i * 1_000_003).replace(tzinfo=dt.timezone.utc)),
    "iv": (10, lambda i: (i % 40, -(i % 9), i * 1_000)),
    "v": (12, lambda i: f"v{i}"),
    "x": (17, lambda i: f"a text that is long, of row {i} ü"),
    "y": (16, lambda i: b"\0\xff" + 3 * i.to_bytes(8, "big")),
    "u": (5, lambda i: (i * 0x1234_5678_9ABC_DEF1).to_bytes(16, "big")),
    "w": (9, lambda i: f"one of a few words: number {i % 5}"),
    "all_null": (1, None),
}
EXPECTED = {
    name: [None if null is not None and i % null == 0 else value(i) for i in range(rows)]
    for name, (null, value) in COLUMNS.items()
}


def compare(way, name, ids, values):
    assert sorted(ids) == EXPECTED["id"], f"{way}: {len(ids)} of {rows} rows, or others"
    for i, got in zip(ids, values):
        expected = EXPECTED[name][i]
        if isinstance(got, uuid.UUID):
            got = got.bytes
        if isinstance(got, dt.datetime) and got.tzinfo is not None:
            got = got.astimezone(dt.timezone.utc)
        if name == "iv" and got is not None:
            got = tuple(got)
        assert got == expected, f"{way}: {name} of row {i} is {got!r}, not {expected!r}"


def check_pyarrow(way, table):
    table.validate(full=True)
    ids = table["id"].to_pylist()
    assert table.column_names == list(COLUMNS), table.column_names
    for name in COLUMNS:
        compare(f"pyarrow, {way}", name, ids, table[name].to_pylist())
    print(f"pyarrow {pa.__version__}, {way}: {rows} rows are equal")


def check_polars(way, frame):
    ids = frame["id"].to_list()
    # Polars has no type for intervals of months, days and nanoseconds.
    columns = [name for name in COLUMNS if name != "iv"]
    assert frame.columns == columns, frame.columns
    for name in columns:
        compare(f"Polars, {way}", name, ids, frame[name].to_list())
    print(f"Polars {pl.__version__}, {way}: {rows} rows are equal")


def over_flight(command):
    with flight.connect(f"grpc://{address}") as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
        assert len(info.endpoints) > 1
        return pa.concat_tables(client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints)


def over_c_stream(form):
    export = ctypes.CDLL(library).serac_example_stream
    export.argtypes = [ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p]
    stream = ctypes.create_string_buffer(5 * ctypes.sizeof(ctypes.c_void_p))
    pointer = ctypes.addressof(stream)
    export(rows, form, pointer)
    return pa.RecordBatchReader._import_from_c(pointer)


def without_intervals(table):
    return table.drop_columns(["iv"])


plain = over_flight(b'{"table": "every"}')
assert plain["x"].type == pa.string_view() and plain["n"].type == pa.decimal128(12, 3), plain.schema
check_pyarrow("Flight", plain)
check_polars("Flight", pl.from_arrow(without_intervals(plain)))
other = over_flight(b'{"table": "every", "strings": "utf8", "decimals": "decimal64"}')
assert other["x"].type == pa.string() and other["n"].type == pa.decimal64(12, 3), other.schema
check_pyarrow("Flight, plain strings and 64-bit decimals", other)
# Blocks that have strings with offsets or dictionaries of their own, beside hot ones.
other = over_flight(b'{"table": "every_utf8", "strings": "utf8"}')
check_pyarrow("Flight, frozen as utf8", other)
check_polars("Flight, frozen as utf8", pl.from_arrow(without_intervals(other)))
other = over_flight(b'{"table": "every_dictionary", "strings": "dictionary"}')
assert other["w"].type == pa.dictionary(pa.uint16(), pa.string()), other.schema
assert other["y"].type == pa.dictionary(pa.uint16(), pa.binary()), other.schema
check_pyarrow("Flight, frozen as dictionary", other)
other = over_flight(b'{"table": "every_dictionary", "dictionaries": ["w"]}')
assert other["w"].type == pa.dictionary(pa.uint16(), pa.string()) and other["x"].type == pa.string_view(), other.schema
check_polars("Flight, frozen as dictionary", pl.from_arrow(without_intervals(other)))

with pa.memory_map(ipc_file) as source:
    check_pyarrow("IPC file", pa.ipc.open_file(source).read_all())
with open(ipc_stream, "rb") as source:
    check_pyarrow("IPC stream", pa.ipc.open_stream(source).read_all())
names = [name for name in COLUMNS if name != "iv"]
check_polars("IPC file", pl.read_ipc(ipc_file + ".polars"))
check_polars("IPC stream", pl.read_ipc_stream(ipc_stream + ".polars"))

for form, way in enumerate(["C stream", "C stream, utf8", "C stream, dictionary"]):
    check_pyarrow(way, over_c_stream(form).read_all())
for form, way in enumerate(["C stream", "C stream, utf8"]):
    reader = over_c_stream(form)
    columns = [i for i, name in enumerate(reader.schema.names) if name != "iv"]
    schema = pa.schema([reader.schema.field(i) for i in columns])
    batches = (batch.select(schema.names) for batch in reader)
    check_polars(way, pl.DataFrame(pa.RecordBatchReader.from_batches(schema, batches)))
