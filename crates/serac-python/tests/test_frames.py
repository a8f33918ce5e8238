"""Frames by name in FROM."""

import asyncio
import ctypes
import gc
import threading
import time
import weakref

import numpy
import pandas
import polars
import psycopg
import pyarrow
import pytest
import seracdb
from seracdb import aio

GLOBAL_FRAME = pyarrow.table({"g": [1, 2, 3]})
NUMBER = 7


def addresses(table, column):
    """Where the values of a column lie in memory."""
    return [chunk.buffers()[1].address for chunk in table.column(column).chunks]


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars", "batch", "lazy", "numpy", "cursor", "scan"])
def test_variables_of_the_caller_are_found(con, kind):
    values = {"n": [1, 2, 3], "t": ["a", "b", None]}
    con.execute("CREATE TABLE source (n BIGINT, t TEXT)")
    con.append("source", pyarrow.table(values))
    frame = {
        "pyarrow": lambda: pyarrow.table(values),
        "pandas": lambda: pandas.DataFrame(values),
        "polars": lambda: polars.DataFrame(values),
        "batch": lambda: pyarrow.RecordBatch.from_pydict(values),
        "lazy": lambda: polars.LazyFrame(values),
        "numpy": lambda: {"n": numpy.array([1, 2, 3]), "t": numpy.array(["a", "b", None], dtype=object)},
        "cursor": lambda: con.execute("SELECT * FROM source"),
        "scan": lambda: con.table("source").scan(),
    }[kind]()
    rows = con.execute("SELECT n, t FROM frame WHERE n > 1 ORDER BY n").fetchall()
    assert rows == [(2, "b"), (3, None)]
    del frame


def test_globals_parameters_and_joins(con):
    assert con.execute("SELECT sum(g) FROM GLOBAL_FRAME").fetchone() == (6,)
    local = polars.DataFrame({"g": [2, 3, 4], "name": ["two", "three", "four"]})
    query = "SELECT name FROM global_frame JOIN local USING (g) WHERE g > $1 ORDER BY 1"
    assert con.execute(query, (1,)).fetchall() == [("three",), ("two",)]
    twice = con.execute("SELECT count(*) FROM local AS a, local AS b WHERE a.g < b.g").fetchone()
    assert twice == (3,)
    assert con.prepare("SELECT max(g) FROM local")() == [(4,)]
    del local


def test_the_database_comes_first(con):
    con.execute("CREATE TABLE shown (a INT)")
    shown = pyarrow.table({"a": [5]})
    assert con.execute("SELECT count(*) FROM shown").fetchone() == (0,)
    assert con.execute("WITH shown AS (SELECT 9 AS a) SELECT a FROM shown").fetchone() == (9,)
    con.register("shown", shown)
    assert con.execute("SELECT count(*) FROM shown").fetchone() == (0,)
    con.execute("DROP TABLE shown")
    assert con.execute("SELECT a FROM shown").fetchone() == (5,)
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        con.execute("SELECT * FROM public.shown")


def test_registered_frames_come_before_variables(con):
    frame = pyarrow.table({"a": [1]})
    assert con.register("frame", pyarrow.table({"a": [2]})) is con
    assert con.execute("SELECT a FROM frame").fetchone() == (2,)
    con.unregister("frame")
    assert con.execute("SELECT a FROM frame").fetchone() == (1,)
    with pytest.raises(seracdb.ProgrammingError, match="no frame"):
        con.unregister("frame")
    with pytest.raises(TypeError, match="no frame"):
        con.register("frame", 3)
    # Another connection has its own.
    con.register("own", frame)
    with con.connect() as other, pytest.raises(seracdb.ProgrammingError):
        other.execute("SELECT * FROM own")


def test_names_in_quotes_are_exact_and_others_fold(con):
    myFrame = pyarrow.table({"a": [1]})
    assert con.execute("SELECT a FROM myFrame").fetchone() == (1,)
    assert con.execute('SELECT a FROM "myFrame"').fetchone() == (1,)
    with pytest.raises(seracdb.ProgrammingError):
        con.execute('SELECT a FROM "MYFRAME"')
    MyFrame = myFrame
    with pytest.raises(seracdb.ProgrammingError, match="not unique") as error:
        con.execute("SELECT a FROM myframe")
    assert error.value.sqlstate == "42P09"
    del MyFrame


def test_variables_can_be_switched_off():
    frame = pyarrow.table({"a": [1]})
    with seracdb.connect(autocommit=True, scan_variables=False) as con:
        with pytest.raises(seracdb.ProgrammingError, match='relation "frame" does not exist'):
            con.execute("SELECT * FROM frame")
        con.register("named", frame)
        assert con.execute("SELECT a FROM named").fetchone() == (1,)
        con.scan_variables = True
        assert con.execute("SELECT a FROM frame").fetchone() == (1,)
    del frame


def test_what_is_no_frame_is_named_in_the_error(con):
    with pytest.raises(seracdb.ProgrammingError) as error:
        con.execute("SELECT * FROM number")
    assert error.value.sqlstate == "42P01"
    with pytest.raises(seracdb.ProgrammingError) as error:
        con.execute('SELECT * FROM "NUMBER"')
    assert (error.value.sqlstate, error.value.name) == ("42P01", "NUMBER")
    assert "type int" in str(error.value.detail)
    column = pyarrow.chunked_array([[1]])
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        con.execute("SELECT * FROM column_")
    assert len(column) == 1


def test_a_reader_is_read_once(con):
    table = pyarrow.table({"a": list(range(10))})
    reader = pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=3))
    # It is described without being read.
    assert con.execute("DESCRIBE SELECT * FROM reader").fetchall()[0][0] == "a"
    con.execute("EXPLAIN SELECT * FROM reader")
    assert con.execute("SELECT sum(a) FROM reader").fetchone() == (45,)
    with pytest.raises(seracdb.Error, match="has been read") as error:
        con.execute("SELECT sum(a) FROM reader").fetchall()
    assert error.value.sqlstate == "55000"
    del reader
    gc.collect()
    again = pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert con.execute("SELECT count(*) FROM again").fetchone() == (10,)


def test_a_reader_named_twice_in_a_statement_is_an_error(con):
    table = pyarrow.table({"a": [1]})
    reader = table.to_reader()
    with pytest.raises(seracdb.Error, match="has been read"):
        con.execute("SELECT * FROM reader AS a, reader AS b").fetchall()


def test_readers_made_by_python_code(con):
    schema = pyarrow.schema([("a", pyarrow.int64())])

    def batches():
        for at in range(4):
            yield pyarrow.record_batch([[at, at]], schema=schema)
        raise ValueError("it ends in an error")

    reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(seracdb.Error, match="it ends in an error") as error:
        con.execute("SELECT sum(a) FROM reader").fetchall()
    assert error.value.sqlstate == "38000"
    reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
    assert len(con.execute("SELECT a FROM reader LIMIT 3").fetchall()) == 3


def test_code_of_a_statement_cannot_use_its_connection(con):
    schema = pyarrow.schema([("a", pyarrow.int64())])

    def batches():
        with con.connect() as other:
            (value,) = other.execute("SELECT 20").fetchone()
        yield pyarrow.record_batch([[value]], schema=schema)
        con.execute("SELECT 1")

    reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(seracdb.Error, match="waits for the code that uses it"):
        con.execute("SELECT sum(a) FROM reader").fetchall()


def test_values_are_not_copied(con):
    rows = 50_000
    frame = pyarrow.table({"a": numpy.arange(rows), "b": numpy.arange(rows) / 2})
    result = con.execute("SELECT b, a FROM frame").arrow()
    for column in ("a", "b"):
        (first,) = addresses(frame, column)
        assert all(first <= address < first + 8 * rows for address in addresses(result, column))
    assert result.column("a").to_pylist() == list(range(rows))


def test_polars_texts_are_not_copied(con):
    frame = polars.DataFrame({"t": [f"a text of more than twelve bytes {i}" for i in range(100)]})
    assert con.execute("SELECT t FROM frame").pl().equals(frame)


def test_a_plan_that_is_kept_has_no_stale_frame(con):
    frame = pyarrow.table({"a": [0]})
    statement = con.prepare("SELECT sum(a) FROM frame")
    for value in range(5):
        frame = pyarrow.table({"a": [value, 1]})
        assert con.execute("SELECT sum(a) + $1 FROM frame", (10,)).fetchone() == (value + 11,)
        assert statement() == [(value + 1,)]
    frame = pyarrow.table({"a": ["text"], "c": [1]})
    with pytest.raises(seracdb.ProgrammingError):
        statement()
    del frame


def test_frames_are_only_read(con):
    frame = pyarrow.table({"a": [1]})
    for statement in ["INSERT INTO frame VALUES (2)", "UPDATE frame SET a = 2", "DELETE FROM frame"]:
        with pytest.raises(seracdb.ProgrammingError, match="frame of the program") as error:
            con.execute(statement)
        assert error.value.sqlstate == "42809"
    for statement in [
        "CREATE VIEW v AS SELECT * FROM frame",
        "CREATE VIEW v AS SELECT (SELECT max(a) FROM frame) AS most",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM frame",
    ]:
        with pytest.raises(seracdb.NotSupportedError, match="over a frame"):
            con.execute(statement)
    assert frame.num_rows == 1


def test_frames_into_tables(con, tmp_path):
    frame = pandas.DataFrame({"id": [1, 2], "name": ["a", None], "at": pandas.to_datetime(["2024-01-01", None])})
    con.execute("CREATE TABLE copy AS SELECT * FROM frame")
    con.execute("INSERT INTO copy SELECT id + 10, upper(name), at FROM frame")
    assert con.execute("SELECT count(*), max(name) FROM copy").fetchone() == (4, "a")
    con.execute(f"COPY (SELECT * FROM frame) TO '{tmp_path / 'out.csv'}'")
    assert (tmp_path / "out.csv").read_text() == "1,a,2024-01-01 00:00:00\n2,,\n"
    con.execute("UPDATE copy SET name = frame.name || '!' FROM frame WHERE copy.id = frame.id + 10")
    assert con.execute("SELECT name FROM copy WHERE id = 11").fetchone() == ("a!",)
    con.execute("DELETE FROM copy WHERE id IN (SELECT id FROM frame)")
    assert con.execute("SELECT count(*) FROM copy").fetchone() == (2,)


def test_types_that_sql_does_not_have_are_refused_by_name(con):
    frame = pyarrow.table({"a": [1], "s": [{"x": 1}]})
    assert con.execute("SELECT a FROM frame").fetchone() == (1,)
    with pytest.raises(seracdb.NotSupportedError, match='"s"'):
        con.execute("SELECT * FROM frame")
    assert frame.num_rows == 1


def test_types_of_columns(con):
    frame = pyarrow.table(
        {
            "u": pyarrow.array([2**64 - 1], pyarrow.uint64()),
            "d": pyarrow.array(["1.50"]).cast(pyarrow.decimal128(5, 2)),
            "w": pyarrow.array(["x"]).dictionary_encode(),
            "l": pyarrow.array([[1, None]]),
            "b": pyarrow.array([b"\x00"]),
            "n": pyarrow.nulls(1),
        }
    )
    (row,) = con.execute("SELECT * FROM frame").fetchall()
    assert row[0] == 2**64 - 1 and str(row[1]) == "1.50"
    assert row[2:] == ("x", [1, None], b"\x00", None)
    assert con.execute("SELECT summarized.* FROM (SELECT u + 1 FROM frame) AS summarized").fetchone() == (2**64,)
    del frame


def test_a_generator_of_frames_in_threads(con):
    failures = []

    def work(number):
        frame = pyarrow.table({"a": [number] * 1000})
        try:
            for _ in range(20):
                assert con.execute("SELECT sum(a) FROM frame").fetchone() == (number * 1000,)
        except BaseException as failure:
            failures.append(failure)
        del frame

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_frames_live_no_longer_than_they_must(con):
    def used():
        frame = pyarrow.table({"a": list(range(1000))})
        con.execute("SELECT sum(a) FROM frame").fetchall()
        return weakref.ref(frame)

    reference = used()
    gc.collect()
    assert reference() is None
    con.register("frame", pyarrow.table({"a": [1]}))
    registered = weakref.ref(con._registered["frame"])
    con.unregister("frame")
    gc.collect()
    assert registered() is None


def test_a_connection_that_is_registered_with_its_own_cursor_is_collected():
    con = seracdb.connect()
    con.register("own", con.execute("SELECT 1 AS a"))
    reference = weakref.ref(con)
    del con
    gc.collect()
    assert reference() is None


def test_a_frame_without_rows_or_columns(con):
    empty = pyarrow.table({"a": pyarrow.array([], pyarrow.int64())})
    assert con.execute("SELECT count(*), sum(a) FROM empty").fetchone() == (0, None)
    nothing = polars.DataFrame()
    assert con.execute("SELECT count(*) FROM nothing").fetchone() == (0,)
    assert len(empty) == len(nothing) == 0


def test_clients_of_the_network_find_no_frames(con):
    frame = pyarrow.table({"a": [1]})
    con.register("registered", frame)
    con.create_function("f", lambda x: x, [int], int)
    with con.serve(pg="127.0.0.1:0") as server:
        host, port = server.addresses["pg"]
        with psycopg.connect(host=host, port=port, dbname="serac", user="serac", autocommit=True) as client:
            for query in ["SELECT * FROM frame", "SELECT * FROM registered"]:
                with pytest.raises(psycopg.errors.UndefinedTable):
                    client.execute(query.encode())
            with pytest.raises(psycopg.errors.UndefinedFunction):
                client.execute("SELECT f(1)")
    assert con.execute("SELECT f(a) FROM frame").fetchone() == (1,)


def test_a_table_hides_a_frame_whoever_made_it(con):
    shown = pyarrow.table({"a": [5]})
    statement = con.prepare("SELECT a FROM shown")
    assert statement() == [(5,)]
    other = con.connect()
    for make, drop in [
        ("CREATE TABLE shown (a INT)", "DROP TABLE shown"),
        ("CREATE VIEW shown AS SELECT 7 AS a LIMIT 0", "DROP VIEW shown"),
        ("CREATE MATERIALIZED VIEW shown AS SELECT 7 AS a LIMIT 0", "DROP MATERIALIZED VIEW shown"),
    ]:
        other.execute(make)
        assert con.execute("SELECT a FROM shown").fetchall() == statement() == []
        other.execute(drop)
        assert con.execute("SELECT a FROM shown").fetchall() == statement() == [(5,)]
    con.execute("CREATE TEMP TABLE shown (a INT)")
    assert con.execute("SELECT a FROM shown").fetchall() == []
    # A system table, and a name with a schema, are none of the program's.
    pg_class = shown
    assert con.execute("SELECT count(*) FROM pg_class").fetchone() != (1,)
    assert pg_class.num_rows == 1


def test_a_view_does_not_see_the_frames_of_its_reader(con):
    con.execute("CREATE TABLE base (a INT)")
    con.execute("CREATE VIEW v AS SELECT * FROM base")
    con.execute("ALTER TABLE base RENAME TO other")
    base = pyarrow.table({"a": [1]})
    assert con.execute("SELECT * FROM v").fetchall() == []
    assert con.execute("SELECT * FROM base").fetchall() == [(1,)]
    del base


class Stream:
    """A frame whose stream is made by a function."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 1

    def __arrow_c_stream__(self, requested_schema=None):
        return self.make()


def raises():
    raise RuntimeError("no stream today")


@pytest.mark.parametrize(
    "make",
    [
        raises,
        lambda: None,
        lambda: object(),
        lambda: pyarrow.schema([]).__arrow_c_schema__(),
        lambda: pyarrow.record_batch({"a": [1]}).__arrow_c_array__(),
    ],
)
def test_objects_that_give_no_stream(con, make):
    frame = Stream(make)
    with pytest.raises(seracdb.Error) as error:
        con.execute("SELECT * FROM frame").fetchall()
    assert error.value.sqlstate == "38000" and '"frame"' in str(error.value)
    assert make is not raises or "in raises\n" in str(error.value.detail)
    con.register("named", frame)
    with pytest.raises(seracdb.Error):
        con.execute("INSERT INTO named SELECT 1")
    assert con.execute("SELECT 1").fetchone() == (1,)


def test_a_stream_that_was_taken_out_of_its_capsule(con):
    capsule = pyarrow.table({"a": [1]}).__arrow_c_stream__()
    frame = Stream(lambda: capsule)
    assert con.execute("SELECT a FROM frame").fetchall() == [(1,)]
    with pytest.raises(seracdb.Error):
        con.execute("SELECT a FROM frame").fetchall()


def texts(offsets, data, rows=2):
    offsets = pyarrow.array(offsets, pyarrow.int32()).buffers()[1]
    return pyarrow.StringArray.from_buffers(rows, offsets, pyarrow.py_buffer(data))


def broken_keys():
    keys = pyarrow.array([0, 7], pyarrow.int8())
    return pyarrow.DictionaryArray.from_arrays(keys, pyarrow.array(["a"]), safe=False)


def broken_list():
    offsets = pyarrow.array([0, 9, 1], pyarrow.int32()).buffers()[1]
    return pyarrow.Array.from_buffers(
        pyarrow.list_(pyarrow.int64()), 2, [None, offsets], children=[pyarrow.array([1, 2])]
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: texts([0, 2, 2], b"\xff\xfe"),
        lambda: texts([0, 20_000_000, 4], b"abcd"),
        lambda: texts([3, 1, 4], b"abcd"),
        lambda: texts([0, -1, 4], b"abcd"),
        broken_keys,
        broken_list,
    ],
    ids=["utf8", "far", "backwards", "negative", "keys", "list"],
)
@pytest.mark.parametrize("as_table", [True, False])
def test_memory_that_is_no_arrow_is_refused(con, make, as_table):
    batch = pyarrow.RecordBatch.from_arrays([make()], names=["a"])
    frame = pyarrow.Table.from_batches([batch]) if as_table else batch
    for query in ["SELECT * FROM frame", "SELECT count(a) FROM frame", "CREATE TABLE t AS SELECT * FROM frame"]:
        with pytest.raises(seracdb.Error):
            con.execute(query).fetchall()
    con.create_function("wrong", lambda x: make(), [int], "text", kind="arrow")
    with pytest.raises(seracdb.Error):
        con.execute("SELECT wrong(i) FROM generate_series(1, 2) AS g (i)").fetchall()
    con.create_table_function("rows_", lambda: frame, [], {"a": "text"})
    with pytest.raises(seracdb.Error):
        con.execute("SELECT * FROM rows_()").fetchall()
    assert con.execute("SELECT 1").fetchone() == (1,)


class ArrowArray(ctypes.Structure):
    """The struct of Arrow's C interface."""


ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.c_void_p),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


@pytest.mark.parametrize(
    ("field", "value", "of_child"),
    [
        ("n_children", 1, False),
        ("n_children", 0, False),
        ("length", 100, False),
        ("length", 1, True),
        ("n_buffers", 1, True),
        ("buffers", None, True),
        ("release", None, False),
    ],
)
def test_structs_that_do_not_fit_are_refused(con, field, value, of_child):
    class Frame:
        def __arrow_c_array__(self, requested_schema=None):
            capsules = pyarrow.record_batch({"a": [1, 2, 3], "t": ["x", "y", "z"]}).__arrow_c_array__()
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            array = ctypes.cast(pointer(capsules[1], b"arrow_array"), ctypes.POINTER(ArrowArray)).contents
            setattr(array.children[0].contents if of_child else array, field, value)
            return capsules

    frame = Frame()
    with pytest.raises(seracdb.Error, match="Arrow|array|buffer"):
        con.execute("SELECT * FROM frame").fetchall()
    with pytest.raises(ValueError, match="Arrow|array|buffer"):
        con.append("t", frame, create=True)
    assert con.execute("SELECT 1").fetchone() == (1,)


def test_values_that_are_none_of_their_type(con):
    # Bytes are no numbers, although the engine keeps those in the same Arrow type.
    frame = pyarrow.table({"a": pyarrow.array([b"\x01\x02"], pyarrow.large_binary())})
    assert con.execute("SELECT a FROM frame").fetchone() == (b"\x01\x02",)
    document = pyarrow.field("a", pyarrow.string(), metadata={"ARROW:extension:name": "arrow.json"})
    frame = pyarrow.Table.from_arrays([pyarrow.array(["{"])], schema=pyarrow.schema([document]))
    with pytest.raises(seracdb.DataError):
        con.execute("SELECT a FROM frame").fetchall()
    words = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, None, 1], pyarrow.int8()), pyarrow.array(["a", None]))
    frame = pyarrow.table({"a": words})
    assert con.execute("SELECT a, count(*) FROM frame GROUP BY a ORDER BY a").fetchall() == [("a", 1), (None, 2)]
    frame = pyarrow.table({"a": pyarrow.array([["a", None], None, []], pyarrow.list_(words.type))})
    assert con.execute("SELECT a FROM frame").fetchall() == [(["a", None],), (None,), ([],)]


def test_columns_of_one_name(con):
    frame = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    with pytest.raises(seracdb.ProgrammingError) as error:
        con.execute("SELECT * FROM frame").fetchall()
    assert error.value.sqlstate == "42701"
    assert frame.num_columns == 2


def test_columns_that_change_between_two_readings(con):
    tables = [pyarrow.table({"a": [1]}), pyarrow.table({"b": ["x"]})]
    frame = Stream(lambda: tables.pop(0).__arrow_c_stream__())
    with pytest.raises(seracdb.ProgrammingError, match="have changed") as error:
        con.execute("SELECT * FROM frame AS x, frame AS y").fetchall()
    assert error.value.sqlstate == "42804"


def test_polars_columns_of_null_alone(con):
    frame = polars.DataFrame({"a": [1, 2], "n": [None, None]})
    assert con.execute("SELECT a, n FROM frame ORDER BY a").fetchall() == [(1, None), (2, None)]


def test_a_long_frame_is_cancelled(con):
    schema = pyarrow.schema([("a", pyarrow.int64())])
    given = []

    def endless():
        while True:
            given.append(1)
            yield pyarrow.record_batch([[1] * 1000], schema=schema)

    frame = pyarrow.RecordBatchReader.from_batches(schema, endless())
    timer = threading.Timer(0.3, con.cancel)
    timer.start()
    with pytest.raises(seracdb.QueryCanceled):
        con.execute("SELECT sum(a) FROM frame").fetchall()
    timer.join()
    assert con.execute("SELECT 1").fetchone() == (1,)
    # Nobody reads it any more.
    end, read = time.monotonic() + 30, -1
    while len(given) > read:
        assert time.monotonic() < end
        read = len(given)
        time.sleep(0.1)
    del frame


def test_tasks_find_their_own_variables():
    async def asked(con, value):
        frame = pyarrow.table({"a": [value]})
        cursor = await con.execute("SELECT a FROM frame")
        del frame
        return await cursor.fetchall()

    async def main():
        async with await aio.connect(autocommit=True) as con:
            assert await asyncio.gather(*(asked(con, value) for value in range(5))) == [[(v,)] for v in range(5)]
            con.register("named", pyarrow.table({"a": [7]}))
            assert await (await con.execute("SELECT a FROM named")).fetchall() == [(7,)]
            con.unregister("named")
            await con.create_function("twice", lambda x: 2 * x, [int], int)
            assert await (await con.execute("SELECT twice(4)")).fetchall() == [(8,)]
            await con.remove_function("twice")
            con.scan_variables = False
            with pytest.raises(seracdb.ProgrammingError):
                await asked(con, 1)

    asyncio.run(main())
