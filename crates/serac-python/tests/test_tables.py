"""Scans that lend the database's memory, and frames into tables."""

import datetime as dt
import decimal
from typing import Any

import numpy
import pandas
import polars
import pyarrow
import pytest
import seracdb


def addresses(table):
    return [buffer.address for column in table.columns for chunk in column.chunks for buffer in chunk.buffers() if buffer]


def test_scans_lend_the_blocks_own_memory(numbers):
    scan = numbers.table("numbers").scan(columns=["id", "half"])
    one, other = scan.arrow(), numbers.table("numbers").scan(["id", "half"]).arrow()
    assert one.num_rows == 10_000
    assert addresses(one) == addresses(other) and addresses(one)
    assert polars.DataFrame(scan)["id"].sum() == sum(range(10_000))


def test_lent_memory_stays_after_updates_and_closing(tmp_path):
    con = seracdb.connect(tmp_path / "db", autocommit=True)
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    con.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 100000) AS g (i)")
    con.execute("FREEZE TABLE t")
    scan = con.table("t").scan()
    before = scan.arrow()
    places = addresses(before)
    con.execute("UPDATE t SET n = 0")
    con.execute("DELETE FROM t WHERE id > 10")
    con.execute("FREEZE TABLE t")
    assert con.table("t").scan().arrow().num_rows == 10
    assert addresses(before) == places
    con.close()
    assert before["n"].to_pylist() == list(range(1, 100_001))
    # The scan has its snapshot still.
    assert scan.arrow()["n"].to_pylist() == list(range(1, 100_001))


def test_columns_and_filters(numbers):
    table = numbers.table("numbers")
    assert table.scan(["name"], [("id", "<", 3)]).arrow()["name"].to_pylist() == ["n0", "n1", "n2"]
    assert table.scan(["id"], [("id", ">=", 5), ("half", "<=", 3.0)]).arrow()["id"].to_pylist() == [5, 6]
    assert table.scan(["id"], [("name", "=", "n77")]).arrow()["id"].to_pylist() == [77]
    assert table.scan(["id"], [("name", "=", None)]).arrow().num_rows == 0
    assert table.scan(["id"], [("id", "!=", 0)]).arrow().num_rows == 9_999
    wrongs: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"columns": ["none"]}, seracdb.ProgrammingError),
        ({"filter": [("none", "=", 1)]}, seracdb.ProgrammingError),
        ({"filter": [("id", "~", 1)]}, ValueError),
        ({"filter": [("id", "=", "x")]}, TypeError),
    ]
    for wrong, cls in wrongs:
        with pytest.raises(cls):
            table.scan(**wrong)
    with pytest.raises(seracdb.ProgrammingError, match="nowhere"):
        numbers.table("nowhere").scan()
    with pytest.raises(seracdb.ProgrammingError):
        numbers.table("numbers", schema="nowhere").scan()


def test_filters_of_every_type(con):
    con.execute(
        "CREATE TABLE t (b BOOLEAN, s SMALLINT, d NUMERIC(10, 2), n NUMERIC, day DATE, ts TIMESTAMP, tz TIMESTAMPTZ, u UUID, bytes BYTEA)"
    )
    row = (
        True,
        3,
        decimal.Decimal("1.50"),
        decimal.Decimal("2.5"),
        dt.date(2024, 1, 2),
        dt.datetime(2024, 1, 2, 3),
        dt.datetime(2024, 1, 2, 3, tzinfo=dt.timezone.utc),
        __import__("uuid").UUID(int=5),
        b"x",
    )
    con.execute("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", row)
    names = [column[0] for column in con.execute("SELECT * FROM t").description]
    for name, value in zip(names, row, strict=True):
        assert con.table("t").scan(["s"], [(name, "=", value)]).arrow().num_rows == 1, name
        assert con.table("t").scan(["s"], [(name, "<>", value)]).arrow().num_rows == 0, name


def test_a_condition_keeps_its_value_or_is_refused(con):
    con.execute("CREATE TABLE t (i INT, d NUMERIC(10, 2), f DOUBLE PRECISION, r REAL, day DATE, b BOOLEAN, t TEXT)")
    con.execute(
        "INSERT INTO t SELECT i, i, i, i / 10.0, date '2024-01-01' + i, i % 2 = 0, i::text"
        " FROM generate_series(1, 20) AS g (i)"
    )

    def found(*condition):
        return con.table("t").scan(["i"], [condition]).arrow().num_rows

    for condition, rows in [
        (("i", "<", 10.0), 9),
        (("i", "=", decimal.Decimal("10")), 1),
        (("d", "<", decimal.Decimal("10.5")), 10),
        (("d", "<", 10.5), 10),
        (("d", "<", "10.5"), 10),
        (("f", "<", 10), 9),
        (("f", "<", decimal.Decimal("2.5")), 2),
        (("r", "=", 0.1), 1),
        (("day", "<", dt.datetime(2024, 1, 3)), 1),
        (("t", "=", 5), 1),
    ]:
        assert found(*condition) == rows, condition
    for condition in [
        ("i", "<", 10.7),
        ("i", "=", 1.5),
        ("i", "<", decimal.Decimal("10.7")),
        ("d", "=", 1.005),
        ("d", "=", "1.005"),
        ("f", "<", 2**53 + 1),
        ("day", "<", dt.datetime(2024, 1, 3, 12)),
        ("b", "=", 2),
        ("t", "=", decimal.Decimal("5")),
    ]:
        with pytest.raises(TypeError, match="is no value"):
            found(*condition)


def test_scans_see_the_connections_transaction(con):
    con.execute("CREATE TABLE t (a INT)")
    other = con.connect()
    with con.transaction():
        con.execute("INSERT INTO t VALUES (1)")
        assert con.table("t").scan().arrow().num_rows == 1
        assert other.table("t").scan().arrow().num_rows == 0


def test_stored_forms(con):
    con.execute("CREATE TABLE t (d NUMERIC(10, 2), name TEXT) WITH (freeze_format = dictionary)")
    con.execute("INSERT INTO t SELECT i / 100.0, 'n' || i % 3 FROM generate_series(1, 1000) AS g (i)")
    con.execute("FREEZE TABLE t")
    usual, stored = con.table("t").scan().arrow(), con.table("t").scan(stored=True).arrow()
    assert usual.schema.field("d").type == pyarrow.decimal128(10, 2)
    assert stored.schema.field("d").type == pyarrow.decimal64(10, 2)
    assert pyarrow.types.is_dictionary(stored.schema.field("name").type)
    assert usual["d"].to_pylist() == stored["d"].to_pylist()


def frames(rows):
    ids, names = list(range(rows)), [f"n{i}" for i in range(rows)]
    yield pandas.DataFrame({"id": ids, "name": names})
    yield polars.DataFrame({"id": ids, "name": names})
    yield pyarrow.table({"id": ids, "name": names})
    yield pyarrow.record_batch({"id": ids, "name": names})


def test_frames_of_every_package_are_appended(con):
    con.execute("CREATE TABLE t (id BIGINT, name TEXT, more INT DEFAULT 7)")
    for number, frame in enumerate(frames(5_000), 1):
        assert con.append("t", frame) == 5_000
        expected = (5_000 * number, "n999", 7)
        assert con.execute("SELECT count(*), max(name), min(more) FROM t").fetchone() == expected
    source = con.execute("SELECT id, name FROM t WHERE id < 10")
    assert con.connect(autocommit=True).append("t", source) == 40


def test_an_append_is_whole_or_nothing(con):
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")

    def batches():
        for start in [0, 1000, 500]:
            yield pyarrow.record_batch({"id": list(range(start, start + 1000))})

    schema = pyarrow.schema([("id", pyarrow.int64())])
    with pytest.raises(seracdb.UniqueViolation):
        con.append("t", pyarrow.RecordBatchReader.from_batches(schema, batches()))
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)

    def failing():
        yield pyarrow.record_batch({"id": [1]})
        raise ValueError("no more")

    with pytest.raises(seracdb.Error, match="no more"):
        con.append("t", pyarrow.RecordBatchReader.from_batches(schema, failing()))
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_an_append_is_a_part_of_the_transaction(con):
    con.execute("CREATE TABLE t (id BIGINT)")
    other = con.connect(autocommit=False)
    other.append("t", pyarrow.table({"id": [1]}))
    assert other.transaction_status == "open"
    other.rollback()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_tables_are_made(con):
    frame = polars.DataFrame({"id": [1, 2], "name": ["a", None], "at": [dt.datetime(2024, 1, 1)] * 2})
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        con.append("made", frame)
    assert con.append("made", frame, create=True) == 2
    assert con.append("made", frame, create=True) == 2
    assert con.execute("SELECT count(*) FROM made").fetchone() == (4,)
    with pytest.raises(seracdb.ProgrammingError, match="already exists"):
        con.append("made", frame, create=True, if_exists="fail")
    assert con.append("made", frame, create=True, if_exists="replace") == 2
    assert con.execute("SELECT * FROM made").fetchall()[1] == (2, None, dt.datetime(2024, 1, 1))
    assert con.table("made").append(frame) == 2


def test_rows_of_a_query_are_appended_as_they_come(con):
    con.execute("CREATE TABLE t (id BIGINT)")
    for source in [con, con.connect()]:
        con.execute("TRUNCATE t")
        assert con.append("t", source.execute("SELECT id FROM generate_series(1, 300000) AS g (id)")) == 300_000
        assert con.execute("SELECT count(*), sum(id) FROM t").fetchone() == (300_000, 45_000_150_000)


def test_python_code_that_makes_a_frame_uses_other_connections(con):
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1)")
    con.execute("CREATE TABLE copy (id BIGINT)")
    other = con.connect()

    def batches():
        with other.transaction():
            assert other.execute("SELECT n FROM t WHERE id = $1", (1,)).fetchone() == (1,)
            other.executemany("UPDATE t SET n = n + 1 WHERE id = $1", [(1,), (1,)])
        assert other.append("t", pyarrow.table({"id": [2], "n": [2]})) == 1
        yield from other.execute("SELECT id FROM t ORDER BY id").reader()

    frame = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("id", pyarrow.int64())]), batches())
    assert con.append("copy", frame) == 2
    assert con.execute("SELECT id, n FROM copy JOIN t USING (id) ORDER BY id").fetchall() == [(1, 3), (2, 2)]


def test_what_cannot_be_appended(con):
    con.execute("CREATE TABLE t (id BIGINT)")
    with pytest.raises(TypeError, match="is no frame"):
        con.append("t", [1, 2])
    with pytest.raises(TypeError, match="no columns"):
        con.append("t", pyarrow.array([1, 2]))
    with pytest.raises(seracdb.ProgrammingError, match='"other"'):
        con.append("t", pyarrow.table({"other": [1]}))
    with pytest.raises(ValueError, match="if_exists"):
        con.append("t", pyarrow.table({"id": [1]}), if_exists="maybe")
    with pytest.raises(ValueError, match="NULL"):
        con.append("t", pyarrow.array([{"id": 1}, None]))

    class Once:
        capsules = pyarrow.record_batch({"id": [1]}).__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema=None):
            return self.capsules

    assert con.append("t", Once()) == 1
    with pytest.raises(ValueError, match="already"):
        con.append("t", Once())


def test_memory_that_is_no_arrow_is_refused(con):
    con.execute("CREATE TABLE t (name TEXT)")

    def texts(offsets, data):
        offsets = pyarrow.array(offsets, pyarrow.int32()).buffers()[1]
        return pyarrow.StringArray.from_buffers(2, offsets, pyarrow.py_buffer(data))

    for name in [texts([0, 2, 2], b"\xff\xfe"), texts([0, 20_000_000, 4], b"abcd"), texts([3, 1, 4], b"abcd")]:
        batch = pyarrow.record_batch([name], names=["name"])
        for frame in [batch, pyarrow.Table.from_batches([batch])]:
            with pytest.raises(seracdb.Error):
                con.append("t", frame)
    assert con.append("t", pyarrow.record_batch([texts([0, 2, 4], b"abcd")], names=["name"])) == 2
    assert con.execute("SELECT name FROM t").fetchall() == [("ab",), ("cd",)]


def test_types_of_frames(con):
    frame = pandas.DataFrame(
        {
            "small": numpy.arange(3, dtype="int8"),
            "unsigned": numpy.arange(3, dtype="uint32"),
            "real": numpy.arange(3, dtype="float32"),
            "kind": pandas.Categorical(["a", "b", "a"]),
            "moment": pandas.to_datetime(["2024-01-01"] * 3),
            "zoned": pandas.to_datetime(["2024-01-01"] * 3, utc=True),
            "missing": pandas.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
        }
    )
    assert con.append("t", frame, create=True) == 3
    rows = con.execute("SELECT * FROM t").fetchall()
    moment = dt.datetime(2024, 1, 1)
    assert rows[1] == (1, 1, 1.0, "b", moment, moment.replace(tzinfo=dt.timezone.utc), None, False)
    back = con.execute("SELECT * FROM t").df()
    assert back["real"].tolist() == [0.0, 1.0, 2.0] and back["kind"].tolist() == ["a", "b", "a"]


def test_a_frame_comes_back_as_it_was(con):
    frame = polars.DataFrame(
        {
            "i": [1, None, -3],
            "f": [0.5, None, float("inf")],
            "t": ["", None, "ü"],
            "b": [b"", None, b"\x00"],
            "d": [dt.date(2024, 1, 1), None, dt.date(1, 1, 1)],
            "m": [dt.datetime(2024, 1, 1, 1, 2, 3, 4), None, dt.datetime(1, 1, 1)],
            "time": [dt.time(1, 2, 3), None, dt.time(0)],
            "bool": [True, None, False],
        },
        schema_overrides={"i": polars.Int64},
    )
    con.append("t", frame, create=True)
    back = con.execute("SELECT * FROM t").pl()
    assert back.equals(frame.cast({"m": polars.Datetime("us")}))
