"""Values from outside become values of SQL's types as SQL makes them: parameters, frames, files."""

import datetime
import decimal

import pyarrow
import pytest

import seracdb

# Texts that Arrow reads otherwise than SQL, or not at all, or that are no values of the type.
TEXTS = {
    "date": ["infinity", "2020-1-5", "20200105", "Jan 8, 1999", "0044-03-15 BC", "2020-02-30"],
    "timestamp": ["-infinity", "2020-01-01T10:00:00+02:00", "2020-01-01 10:00:00.1234567", "2020-01-01 24:00", "x"],
    "timestamptz": ["2020-01-01 10:00", "2020-01-01T10:00:00+02:00", "2020-06-01 10:00:00.9999996Z"],
    "time": ["101010", "10", "10:00:00.1234567", "10:00 PM", "25:00"],
    "interval": ["5", "1 day", "P1Y2M", "1-2", "1.5 months", "1 fortnight"],
    "boolean": ["t", "tr", "on", "2"],
    "double precision": ["1e400", "1e-400", "inf", "-0", " 1.5 "],
    "real": ["1e39", "16777217"],
    "numeric": ["1e400", "NaN", ".5", "1,000"],
    "integer": [" 12 ", "+5", "0x1", "1.0", "2147483648"],
    "uuid": [
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
        "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        "a0eebc9-99c0b-4ef8-bb6d-6bb9bd380a11",
    ],
    "bytea": ["\\x01ff", "abc", "\\x0g"],
}


def value(con, query, text):
    try:
        return con.execute(query, (text,)).fetchone()[0]
    except seracdb.Error as error:
        return str(error.sqlstate)


@pytest.mark.parametrize("of", TEXTS)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_text_is_the_value_that_its_cast_is(con, of, zone):
    con.execute(f"SET timezone = '{zone}'")
    con.execute(f"CREATE TABLE t (v {of})")
    for text in TEXTS[of]:
        cast = value(con, f"SELECT ($1::text::{of})::text", text)
        assert value(con, f"SELECT ($1::{of})::text", text) == cast, text
        con.execute("DELETE FROM t")
        if value(con, "INSERT INTO t VALUES ($1) RETURNING v::text", text) != cast:
            # Of a text that is no value both are errors.
            assert len(cast) == 5, text


@pytest.mark.parametrize(
    ("of", "values"),
    [
        ("date", pyarrow.array([20200101])),
        ("timestamp", pyarrow.array([1577836800])),
        ("timestamptz", pyarrow.array([1577836800.0])),
        ("time", pyarrow.array([101010])),
        ("boolean", pyarrow.array([1])),
        ("boolean", pyarrow.array([0.5])),
        ("integer", pyarrow.array([True])),
        ("bigint", pyarrow.array([datetime.date(2020, 1, 1)])),
        ("bigint", pyarrow.array([datetime.time(1)])),
        ("numeric", pyarrow.array([datetime.datetime(2020, 1, 1)])),
        ("bytea", pyarrow.array([decimal.Decimal("2.5")])),
        ("integer", pyarrow.array([1]).cast(pyarrow.int32()).cast(pyarrow.date32())),
        ("boolean", pyarrow.array([1, 1]).dictionary_encode()),
    ],
)
def test_columns_that_sql_does_not_assign_are_refused(con, of, values):
    con.execute(f"CREATE TABLE t (v {of})")
    with pytest.raises(seracdb.ProgrammingError, match="is of type") as failure:
        con.append("t", pyarrow.table({"v": values}))
    assert failure.value.sqlstate == "42804"
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)


@pytest.mark.parametrize(
    ("of", "values", "expected"),
    [
        ("smallint", pyarrow.array([1.5, None]), [2, None]),
        ("numeric(5, 1)", pyarrow.array([1, 2]), [decimal.Decimal("1.0"), decimal.Decimal("2.0")]),
        ("date", pyarrow.array([datetime.datetime(2020, 1, 1, 10)]), [datetime.date(2020, 1, 1)]),
        ("text", pyarrow.array([1, 2]), ["1", "2"]),
        ("date", pyarrow.array(["2020-01-01", "20200102"]), [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]),
        ("text", pyarrow.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("integer", pyarrow.nulls(2), [None, None]),
    ],
)
def test_columns_that_sql_assigns_are_taken(con, of, values, expected):
    con.execute(f"CREATE TABLE t (v {of})")
    con.append("t", pyarrow.table({"v": values}))
    assert [row[0] for row in con.execute("SELECT v FROM t").fetchall()] == expected


def test_files_are_read_as_the_columns_of_their_table(con, tmp_path):
    con.execute("CREATE TABLE t (d DATE, ts TIMESTAMP, ti TIME, s TEXT, n NUMERIC, b BOOLEAN)")
    file = tmp_path / "rows.csv"
    file.write_text("d,ts,ti,s,n,b\n20200101,2020-01-01T10:00:00+02,101010,1e5,1e3,on\n")
    assert con.ingest(str(file), "t") == 1
    row = con.execute("SELECT d::text, ts::text, ti::text, s, n::text, b FROM t").fetchone()
    assert row == ("2020-01-01", "2020-01-01 10:00:00", "10:10:10", "1e5", "1000", True)
    con.execute(f"CREATE TABLE u (LIKE t); COPY u FROM '{file}' WITH (FORMAT csv, HEADER)")
    assert con.execute("SELECT * FROM t EXCEPT SELECT * FROM u").fetchall() == []
    file.write_text("d,ts\n20200101,1577836800\n")
    with pytest.raises(seracdb.DataError, match="1577836800"):
        con.ingest(str(file), "t")
    parquet = tmp_path / "rows.parquet"
    con.execute(f"COPY (SELECT 20200101 AS d) TO '{parquet}' WITH (FORMAT parquet)")
    with pytest.raises(seracdb.ProgrammingError, match="is of type date"):
        con.ingest(str(parquet), "t")
    document = tmp_path / "rows.json"
    document.write_text('{"d": "20200102", "s": "00012", "n": 1.50}\n')
    assert con.ingest(str(document), "t") == 1
    row = con.execute("SELECT d::text, s, n::text FROM t WHERE s = '00012'").fetchone()
    assert row == ("2020-01-02", "00012", "1.50")


def test_a_frame_counts_as_its_own_bytes():
    with seracdb.connect(autocommit=True, memory_limit=256 << 20) as con:
        texts = pyarrow.array(["a text of more than a view"] * 1_000_000)
        frame = pyarrow.table({"a": pyarrow.array(range(1_000_000)), "b": texts})
        con.execute("CREATE TABLE t (a BIGINT, b TEXT)")
        con.execute("INSERT INTO t SELECT a, b FROM frame")
        assert con.execute("SELECT count(*), max(a) FROM t").fetchone() == (1_000_000, 999_999)
        assert len(con.execute("SELECT a FROM frame ORDER BY a DESC LIMIT 100000").fetchall()) == 100_000
