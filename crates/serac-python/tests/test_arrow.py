"""Results as Arrow and as frames."""

import datetime as dt
import decimal
import sys

import numpy
import pandas
import polars
import pyarrow
import pytest
import seracdb


def test_frames_of_every_package(numbers):
    def cursor():
        return numbers.execute("SELECT * FROM numbers ORDER BY id")

    table = cursor().arrow()
    assert isinstance(table, pyarrow.Table)
    assert table.column_names == ["id", "half", "name"]
    assert table["id"].to_pylist() == list(range(10_000))
    frame = cursor().pl()
    assert isinstance(frame, polars.DataFrame)
    assert frame["half"].sum() == sum(range(10_000)) / 2
    pandas_frame = cursor().df()
    assert isinstance(pandas_frame, pandas.DataFrame)
    assert pandas_frame["name"].tolist()[9_999] == "n9999"
    arrays = cursor().fetchnumpy()
    assert isinstance(arrays["id"], numpy.ndarray) and arrays["id"].sum() == sum(range(10_000))


def test_any_consumer_of_the_interface(numbers):
    cursor = numbers.execute("SELECT id FROM numbers")
    assert pyarrow.table(cursor).num_rows == 10_000
    cursor = numbers.execute("SELECT id FROM numbers")
    assert polars.DataFrame(cursor).height == 10_000
    cursor = numbers.execute("SELECT id, name FROM numbers")
    assert pyarrow.schema(cursor).names == ["id", "name"]
    assert len(cursor.fetchall()) == 10_000


def test_rows_that_were_read_are_not_in_the_frame(numbers):
    cursor = numbers.execute("SELECT id FROM numbers ORDER BY id")
    assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
    assert cursor.arrow()["id"].to_pylist() == list(range(3, 10_000))
    with pytest.raises(seracdb.InterfaceError, match="have been read"):
        cursor.arrow()
    with pytest.raises(seracdb.InterfaceError, match="have been read"):
        cursor.fetchone()


def test_frames_of_statements_on_keys(numbers):
    cursor = numbers.execute("SELECT id, name FROM numbers WHERE id = $1", (5,))
    assert cursor.arrow().to_pylist() == [{"id": 5, "name": "n5"}]
    cursor = numbers.execute("SELECT id, name FROM numbers WHERE id = $1", (-5,))
    assert cursor.arrow().to_pylist() == []


def test_batches_come_as_they_are_read(con):
    reader = con.execute("SELECT i FROM generate_series(1, 100000000) AS g (i)").reader()
    assert reader.read_next_batch().column(0)[0].as_py() == 1
    reader.close()
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_stream_goes_on_beside_other_statements(con):
    reader = con.execute("SELECT i FROM generate_series(1, 100000) AS g (i)").reader()
    first = reader.read_next_batch().num_rows
    assert con.execute("SELECT 1").fetchall() == [(1,)]
    assert first + sum(batch.num_rows for batch in reader) == 100_000


def test_a_closed_connection_ends_its_streams(con):
    other = con.connect()
    reader = other.execute("SELECT i FROM generate_series(1, 10000000) AS g (i)").reader()
    reader.read_next_batch()
    other.close()
    with pytest.raises(pyarrow.ArrowException, match="closed"):
        while True:
            reader.read_next_batch()


def test_types(con):
    table = con.execute(
        "SELECT 1::smallint AS s, 1.5::real AS r, 1.50::numeric(5, 2) AS d, '15000000000000000000000000000000000000000'::numeric AS n, 'x'::text AS t,"
        " '\\x01'::bytea AS b, DATE '2024-01-02' AS day, TIME '01:02:03' AS time, TIMESTAMP '2024-01-02 03:04:05' AS ts,"
        " TIMESTAMPTZ '2024-01-02 03:04:05+00' AS tz, INTERVAL '1 day' AS i, '[1]'::jsonb AS j, ARRAY[1, 2] AS a,"
        " NULL::int AS nothing"
    ).arrow()
    (row,) = table.to_pylist()
    assert row["s"] == 1 and table.schema.field("s").type == pyarrow.int16()
    assert row["d"] == decimal.Decimal("1.50") and table.schema.field("d").type == pyarrow.decimal128(5, 2)
    assert row["n"] == "15" + "0" * 39
    assert row["t"] == "x" and row["b"] == b"\x01"
    assert row["day"] == dt.date(2024, 1, 2) and row["time"] == dt.time(1, 2, 3)
    assert row["ts"] == dt.datetime(2024, 1, 2, 3, 4, 5)
    assert row["tz"] == dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)
    assert row["i"].days == 1 and row["a"] == [1, 2] and row["nothing"] is None


def test_nulls_in_numpy(con):
    arrays = con.execute("SELECT * FROM (VALUES (1, 1.5::float8, 'a', true), (NULL, NULL, NULL, NULL)) AS v (i, f, t, b)").fetchnumpy()
    assert arrays["i"].tolist() == [1, None] and arrays["i"].dtype == numpy.int32
    assert arrays["f"].tolist() == [1.5, None]
    assert arrays["t"].tolist() == ["a", None]
    assert arrays["b"].tolist() == [True, None]


def test_a_consumer_may_ask_for_other_types(con):
    wanted = pyarrow.schema([("a", pyarrow.int64()), ("t", pyarrow.large_utf8())])
    cursor = con.execute("SELECT 1 AS a, 'x' AS t")
    table = pyarrow.RecordBatchReader.from_stream(cursor, schema=wanted).read_all()
    assert table.schema.types == wanted.types and table.to_pylist() == [{"a": 1, "t": "x"}]


def test_other_types_have_the_same_values(con):
    def read(text, wanted):
        cursor = con.execute(f"SELECT {text} AS a")
        schema = pyarrow.schema([("a", wanted)])
        return pyarrow.RecordBatchReader.from_stream(cursor, schema=schema).read_all()["a"]

    for text, wanted in [
        ("7", pyarrow.int8()),
        ("7", pyarrow.float64()),
        ("1.5::numeric(5, 2)", pyarrow.decimal256(40, 4)),
        ("timestamp '2024-01-01 10:00:00'", pyarrow.timestamp("ns")),
        ("'x'", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
    ]:
        assert read(text, wanted).type == wanted, text
    # A wish with which values would be others is not granted.
    for text, wanted, value in [
        ("1.5::double precision", pyarrow.int32(), 1.5),
        ("1.55::numeric(5, 2)", pyarrow.decimal128(5, 1), decimal.Decimal("1.55")),
        ("timestamp '2024-01-01 10:00:00'", pyarrow.date32(), dt.datetime(2024, 1, 1, 10)),
        ("timestamp '2024-01-01 10:00:00.5'", pyarrow.timestamp("s"), dt.datetime(2024, 1, 1, 10, 0, 0, 500_000)),
        ("'x'", pyarrow.int32(), "x"),
    ]:
        assert read(text, wanted).to_pylist() == [value], text
    with pytest.raises(pyarrow.ArrowInvalid, match="300"):
        read("300", pyarrow.int8())


def test_an_abandoned_frame_frees_the_session(con):
    for _ in range(20):
        con.execute("SELECT i FROM generate_series(1, 10000000) AS g (i)").reader().read_next_batch()
    assert con.execute("SELECT 1").fetchone() == (1,)


def test_packages_that_are_missing_are_named(con, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        con.execute("SELECT 1").pl()


def test_a_frame_that_is_not_read_on_is_not_read_into_memory(con):
    cursor = con.execute("SELECT i FROM generate_series(1, 2000000000) AS g (i)")
    reader = cursor.reader()
    reader.read_next_batch()
    del reader
    # The cursor is there still: its rows are not wanted any more.
    assert con.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(seracdb.InterfaceError, match="have been read"):
        cursor.fetchone()


def test_intervals_in_polars(con):
    query = "SELECT i, ARRAY[i] AS a FROM (SELECT INTERVAL '{} 1 day 2 hours' AS i UNION ALL SELECT NULL) AS q"
    frame = con.execute(query.format("")).pl()
    assert frame.schema == {"i": polars.Duration("us"), "a": polars.List(polars.Duration("us"))}
    assert set(frame["i"].to_list()) == {dt.timedelta(days=1, hours=2), None}
    with pytest.raises(Exception, match="cast it to text"):
        con.execute(query.format("3 months")).pl()
    con.execute("CREATE TABLE t (i INTERVAL)")
    con.execute("INSERT INTO t VALUES ('5 days')")
    assert con.table("t").scan().pl()["i"].to_list() == [dt.timedelta(days=5)]
    assert con.append("t", con.table("t").scan().pl()) == 1
    assert con.execute("SELECT i FROM t").fetchall() == [(dt.timedelta(days=5),)] * 2


@pytest.mark.parametrize("of", ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "DATE[]", "TIMESTAMP[]"])
def test_infinite_dates_are_in_no_frame(con, of):
    for value in ["infinity", "-infinity"]:
        given = f"ARRAY['2020-01-01', '{value}']::{of}" if of.endswith("[]") else f"'{value}'::{of}"
        query = f"SELECT 1 AS i, {given} AS d UNION ALL SELECT 2, NULL"
        for method in ["fetchnumpy", "df", "pl"]:
            with pytest.raises(seracdb.DataError, match=f'"{value}" is out of the range') as error:
                getattr(con.execute(query), method)()
            assert error.value.sqlstate == "22008"
        assert con.execute(query).arrow().num_rows == 2
        assert len(con.execute(f"{query} LIMIT 0").pl()) == 0
