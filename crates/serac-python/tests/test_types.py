"""Values of every type, from Python to SQL and back."""

import datetime as dt
import decimal
import uuid
from decimal import Decimal
from typing import Any

import numpy
import pandas
import pytest
import seracdb
from seracdb import Interval, Json

UTC = dt.timezone.utc
IDENTITY = uuid.UUID("12345678-1234-5678-9abc-123456789abc")

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "SMALLINT": [0, -32768, 32767],
    "INTEGER": [0, -(2**31), 2**31 - 1],
    "BIGINT": [0, -(2**63), 2**63 - 1],
    "REAL": [0.0, 1.5, -2.25, float("inf")],
    "DOUBLE PRECISION": [0.0, 0.1, -1e300, float("inf")],
    "NUMERIC(10, 2)": [Decimal("0.00"), Decimal("-12345678.90"), Decimal("0.01")],
    "NUMERIC(38, 10)": [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")],
    "NUMERIC": [Decimal("1.50"), Decimal("-1e-30"), Decimal(10) ** 60, Decimal("Infinity")],
    "TEXT": ["", "ü€😀", "a'b\"c", "x" * 100_000],
    "VARCHAR(5)": ["abcde"],
    "BYTEA": [b"", b"\x00\xff", bytes(range(256)) * 100],
    "DATE": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "TIME": [dt.time(0), dt.time(23, 59, 59, 999_999)],
    "TIMESTAMP": [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(9999, 12, 31)],
    "TIMESTAMPTZ": [dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)],
    "INTERVAL": [dt.timedelta(0), dt.timedelta(days=-3, microseconds=1), Interval(14, -3, 5_000_000)],
    "UUID": [IDENTITY],
    "JSON": [{"a": [1, None, "x"]}, {}],
    "JSONB": [{"a": [1, 2.5, None, "x"]}, {}],
    "INTEGER[]": [[], [1, 2, 3], [1, None], [[1, 2], [3, 4]]],
    "BIGINT[]": [[2**40, -1]],
    "TEXT[]": [["a", 'b"{},\\', None, ""], [["a", 'b"{},\\'], [None, ""]]],
    "NUMERIC[]": [[Decimal("1.5"), Decimal("2")]],
    "TIMESTAMPTZ[]": [[dt.datetime(2024, 2, 29, tzinfo=UTC)]],
    "UUID[]": [[IDENTITY]],
}


@pytest.mark.parametrize("sql_type", VALUES)
def test_parameters_come_back(con, sql_type):
    """Through a cast, which plans."""
    for value in [*VALUES[sql_type], None]:
        ((back,),) = con.execute(f"SELECT $1::{sql_type}", (value,)).fetchall()
        assert back == value and type(back) is type(value), (sql_type, value)


@pytest.mark.parametrize("sql_type", [sql_type for sql_type in VALUES if "[]" not in sql_type])
def test_columns_keep_values(con, sql_type):
    """Through a table, by statements on keys, and by a scan."""
    con.execute(f"CREATE TABLE t (id INT PRIMARY KEY, value {sql_type})")
    insert = con.prepare("INSERT INTO t VALUES ($1, $2)")
    select = con.prepare("SELECT value FROM t WHERE id = $1")
    assert insert.is_point and select.is_point
    values = [*VALUES[sql_type], None]
    for key, value in enumerate(values):
        assert insert(key, value) == 1
    for key, value in enumerate(values):
        (back,) = select.one(key)
        assert back == value and type(back) is type(value), (sql_type, value)
    rows = con.execute("SELECT value FROM t ORDER BY id").fetchall()
    assert rows == [(value,) for value in values]
    for (back,), value in zip(rows, values, strict=True):
        assert type(back) is type(value)
    for value in VALUES[sql_type]:
        if sql_type != "JSON":
            found = con.execute("SELECT count(*) FROM t WHERE value = $1", (value,)).fetchone()
            assert found >= (1,), (sql_type, value)


def test_not_a_number(con):
    for sql_type in ["REAL", "DOUBLE PRECISION", "NUMERIC"]:
        ((back,),) = con.execute(f"SELECT $1::{sql_type}", (float("nan"),)).fetchall()
        assert back != back
    ((back,),) = con.execute("SELECT $1::NUMERIC", (Decimal("NaN"),)).fetchall()
    assert back.is_nan()


def test_parameters_have_types_of_their_own(con):
    for value, name in [
        (True, "boolean"),
        (1, "integer"),
        (2**40, "bigint"),
        (2**70, "numeric"),
        (1.5, "double precision"),
        (Decimal("1.5"), "numeric"),
        (b"x", "bytea"),
        (dt.date(2024, 1, 1), "date"),
        (dt.time(1), "time without time zone"),
        (dt.datetime(2024, 1, 1), "timestamp without time zone"),
        (dt.datetime(2024, 1, 1, tzinfo=UTC), "timestamp with time zone"),
        (dt.timedelta(1), "interval"),
        (IDENTITY, "uuid"),
        ({"a": 1}, "jsonb"),
        ([1, 2], "integer[]"),
        ([1, 2**40], "bigint[]"),
        ([1, 2.5], "double precision[]"),
    ]:
        ((told, back),) = con.execute("SELECT pg_typeof($1), $1", (value,)).fetchall()
        assert (str(told), back) == (name, value)


def test_a_text_is_of_the_type_of_its_place(con):
    con.execute("CREATE TABLE t (d DATE, n NUMERIC(5, 2), j JSONB, u UUID)")
    con.execute("INSERT INTO t VALUES ($1, $2, $3, $4)", ("2024-01-02", "1.5", "[1]", str(IDENTITY)))
    assert con.execute("SELECT * FROM t").fetchall() == [(dt.date(2024, 1, 2), Decimal("1.50"), [1], IDENTITY)]
    assert con.execute("SELECT $1::int[]", ("{1,2}",)).fetchone() == ([1, 2],)
    assert con.execute("SELECT $1", ("text",)).fetchone() == ("text",)


def test_documents(con):
    for value in [[1, 2], "text", 1.5, True, {"ü": {"a": []}}]:
        assert con.execute("SELECT $1::jsonb", (Json(value),)).fetchone() == (value,)
    con.execute("CREATE TABLE t (j JSONB)")
    con.execute("INSERT INTO t VALUES ($1)", (Json([1]),))
    assert con.execute("SELECT j FROM t").fetchone() == ([1],)
    assert con.execute("SELECT 'null'::jsonb").fetchone() == (None,)


def test_moments_in_other_zones(con):
    zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
    moment = dt.datetime(2024, 1, 1, 12, tzinfo=zone)
    ((back,),) = con.execute("SELECT $1::timestamptz", (moment,)).fetchall()
    assert back == moment and back.tzinfo is UTC


def test_what_python_has_no_value_for(con):
    for text in ["'0044-03-15 BC'::date", "'10000-01-01'::timestamptz"]:
        with pytest.raises(seracdb.DataError, match="cast it to text"):
            con.execute(f"SELECT {text}").fetchall()
        assert con.execute(f"SELECT ({text})::text").fetchall()


def test_values_that_do_not_fit(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, small SMALLINT, money NUMERIC(5, 2))")
    for statement, value in [("small", 40000), ("money", Decimal("1000")), ("small", "x"), ("money", 10**40)]:
        with pytest.raises(seracdb.DataError):
            con.execute(f"INSERT INTO t (id, {statement}) VALUES (1, $1)", (value,))
    con.execute("INSERT INTO t VALUES (1, $1, $2)", (1.0, Decimal("1.005")))
    assert con.execute("SELECT small, money FROM t").fetchall() == [(1, Decimal("1.01"))]
    assert con.execute("SELECT id FROM t WHERE id = $1", (2**40,)).fetchall() == []
    assert con.execute("SELECT id FROM t WHERE id = $1", (1.0,)).fetchall() == [(1,)]
    assert con.execute("SELECT id FROM t WHERE id = $1", (Decimal("1.5"),)).fetchall() == []
    with pytest.raises(seracdb.DatabaseError):
        con.execute("SELECT $1", (dt.time(1, tzinfo=UTC),))


def test_objects_of_other_packages(con):
    for value, back in [
        (numpy.int64(5), 5),
        (numpy.int8(5), 5),
        (numpy.float32(1.5), 1.5),
        (numpy.bool_(True), True),
        (numpy.array([1, 2]), [1, 2]),
        (numpy.datetime64("2024-01-02T03:04:05"), dt.datetime(2024, 1, 2, 3, 4, 5)),
        (pandas.Timestamp("2024-01-02 03:04:05"), dt.datetime(2024, 1, 2, 3, 4, 5)),
        (numpy.datetime64("2024-01-02T03:04:05.000006", "ns"), dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
        (numpy.datetime64("NaT", "ns"), None),
        (numpy.timedelta64(5_000, "ns"), dt.timedelta(microseconds=5)),
        (numpy.array(["2024-01-02"], "datetime64[ns]"), [dt.datetime(2024, 1, 2)]),
        (pandas.NaT, None),
        (pandas.NA, None),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
    ]:
        assert con.execute("SELECT $1", (value,)).fetchone() == (back,), value


def test_lengths_of_time_without_a_length_are_refused(con):
    for value in [numpy.timedelta64(2, "M"), numpy.timedelta64(2, "Y"), numpy.timedelta64(2)]:
        with pytest.raises(TypeError, match="no fixed length"):
            con.execute("SELECT $1", (value,))


def test_texts_have_no_zero_bytes(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
    insert = con.prepare("INSERT INTO t VALUES ($1, $2)")
    assert insert(1, "plain") == 1
    for use in [lambda: insert(2, "a\0b"), lambda: con.execute("SELECT $1::text", ("a\0b",))]:
        with pytest.raises(seracdb.DataError, match="0x00"):
            use()


def test_the_longest_intervals(con):
    for value in [dt.timedelta.max, dt.timedelta.min]:
        assert con.execute("SELECT $1", (value,)).fetchone() == (value,)


def test_arrays_as_conditions(con):
    assert con.execute("SELECT i FROM generate_series(1, 5) AS g (i) WHERE i = ANY($1)", ([2, 4],)).fetchall() == [
        (2,),
        (4,),
    ]
    with pytest.raises(TypeError, match="one type"):
        con.execute("SELECT $1", ([1, "a"],))


def test_rows_are_tuples(con):
    assert con.execute("SELECT ROW(1, 'a', NULL)").fetchone() == ((1, "a", None),)


def test_subclasses_keep_their_value(con):
    class Key(int):
        def __str__(self):
            return "a key"

    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n NUMERIC)")
    con.execute("INSERT INTO t VALUES ($1, $2)", (Key(3), Key(10**30)))
    assert con.execute("SELECT id, n FROM t WHERE id = $1", (Key(3),)).fetchall() == [(3, Decimal(10**30))]


def test_precision_does_not_follow_the_context(con):
    with decimal.localcontext() as context:
        context.prec = 3
        assert con.execute("SELECT 1234567.89").fetchone() == (Decimal("1234567.89"),)
