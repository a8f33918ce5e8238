"""DB-API 2.0 (PEP 249), line by line."""

import datetime
from typing import Any

import pytest
import seracdb


def test_module_attributes():
    assert seracdb.apilevel == "2.0"
    assert seracdb.threadsafety == 2
    assert seracdb.paramstyle == "named"
    assert issubclass(seracdb.Warning, Exception)
    assert issubclass(seracdb.Error, Exception)
    for name in ["InterfaceError", "DatabaseError"]:
        assert issubclass(getattr(seracdb, name), seracdb.Error)
    for name in [
        "DataError",
        "OperationalError",
        "IntegrityError",
        "InternalError",
        "ProgrammingError",
        "NotSupportedError",
    ]:
        assert issubclass(getattr(seracdb, name), seracdb.DatabaseError)
        assert getattr(seracdb.Connection, name) is getattr(seracdb, name)


def test_constructors_of_values():
    assert seracdb.Date(2002, 12, 25) == datetime.date(2002, 12, 25)
    assert seracdb.Time(13, 45, 30) == datetime.time(13, 45, 30)
    assert seracdb.Timestamp(2002, 12, 25, 13, 45, 30) == datetime.datetime(2002, 12, 25, 13, 45, 30)
    assert seracdb.Binary(b"x") == b"x"
    assert isinstance(seracdb.DateFromTicks(0), datetime.date)
    assert isinstance(seracdb.TimeFromTicks(0), datetime.time)
    assert isinstance(seracdb.TimestampFromTicks(0), datetime.datetime)


def test_rows_are_fetched_one_by_one_some_or_all(con):
    cursor = con.cursor()
    assert cursor.execute("SELECT i FROM generate_series(1, 10) AS g (i)") is cursor
    assert cursor.fetchone() == (1,)
    assert cursor.arraysize == 1
    assert cursor.fetchmany() == [(2,)]
    cursor.arraysize = 2
    assert cursor.fetchmany() == [(3,), (4,)]
    assert cursor.fetchmany(3) == [(5,), (6,), (7,)]
    assert cursor.rownumber == 7
    assert next(cursor) == (8,)
    assert cursor.fetchall() == [(9,), (10,)]
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []
    assert cursor.fetchmany() == []
    assert list(cursor) == []


def test_a_cursor_iterates(con):
    assert [i for (i,) in con.execute("SELECT i FROM generate_series(1, 30000) AS g (i)")] == list(range(1, 30001))


def test_description_and_rowcount(con):
    cursor = con.cursor()
    assert cursor.description is None and cursor.rowcount == -1 and cursor.rownumber is None
    cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, price NUMERIC(10, 2) NOT NULL, name VARCHAR(5), at TIMESTAMP)")
    assert cursor.description is None
    cursor.execute("INSERT INTO t VALUES (1, 1.5, 'a', now()), (2, 2.5, 'b', NULL)")
    assert cursor.rowcount == 2 and cursor.description is None
    cursor.execute("SELECT * FROM t ORDER BY id")
    columns: Any = cursor.description
    assert [column[0] for column in columns] == ["id", "price", "name", "at"]
    codes = [column[1] for column in columns]
    assert codes[0] == seracdb.NUMBER and codes[1] == seracdb.NUMBER
    assert codes[2] == seracdb.STRING and codes[3] == seracdb.DATETIME
    assert codes[2] != seracdb.NUMBER and seracdb.BINARY != codes[2] and seracdb.ROWID != codes[0]
    assert columns[1][4:6] == (10, 2)
    assert all(len(column) == 7 for column in columns)
    assert len(cursor.fetchall()) == 2
    assert cursor.rowcount == 2
    cursor.execute("UPDATE t SET price = price + 1 WHERE id = 1 RETURNING price")
    assert cursor.rowcount == 1
    assert [str(price) for (price,) in cursor] == ["2.50"]
    cursor.execute("DELETE FROM t")
    assert cursor.rowcount == 2


def test_a_statement_without_rows_has_nothing_to_fetch(con):
    cursor = con.execute("CREATE TABLE t (a INT)")
    for fetch in [cursor.fetchone, cursor.fetchall, cursor.fetchmany]:
        with pytest.raises(seracdb.Error):
            fetch()


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("SELECT $1::int + $2::int", (1, 2)),
        ("SELECT :1::int + :2::int", [1, 2]),
        ("SELECT ?::int + ?::int", (1, 2)),
        ("SELECT :a::int + :b::int", {"a": 1, "b": 2}),
        ("SELECT :b::int + :a::int WHERE :a = 1", {"a": 1, "b": 2, "unused": 3}),
    ],
)
def test_styles_of_parameters(con, text, parameters):
    assert con.execute(text, parameters).fetchall() == [(3,)]


def test_texts_without_parameters_are_not_looked_at(con):
    assert con.execute("SELECT ':a', '?', (ARRAY[1, 2, 3])[1:2]").fetchall() == [(":a", "?", [1, 2])]


def test_wrong_parameters_are_refused(con):
    with pytest.raises(seracdb.ProgrammingError, match='"b"'):
        con.execute("SELECT :a::int, :b::int", {"a": 1})
    with pytest.raises(seracdb.ProgrammingError, match="names"):
        con.execute("SELECT :a::int", (1,))
    with pytest.raises(seracdb.ProgrammingError, match="order"):
        con.execute("SELECT $1::int", {"a": 1})
    with pytest.raises(seracdb.ProgrammingError, match="either names or numbers"):
        con.execute("SELECT :a, $1", {"a": 1})
    with pytest.raises(seracdb.Error):
        con.execute("SELECT $1::int, $2::int", (1,))
    con.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(seracdb.Error):
        con.execute("SELECT * FROM t WHERE id = $1", (1, 2))
    with pytest.raises(TypeError, match="object"):
        con.execute("SELECT $1", (object(),))


def test_executemany_is_whole_or_nothing(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
    cursor = con.executemany("INSERT INTO t VALUES (:id, :name)", ({"id": i, "name": str(i)} for i in range(1000)))
    assert cursor.rowcount == 1000
    with pytest.raises(seracdb.UniqueViolation):
        con.executemany("INSERT INTO t VALUES ($1, $2)", [(2000, "a"), (1, "b")])
    assert con.execute("SELECT count(*), max(name) FROM t").fetchall() == [(1000, "999")]
    assert con.transaction_status == "idle"


def test_executemany_leaves_the_commit_to_the_user(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    other = con.connect(autocommit=False)
    other.executemany("INSERT INTO t VALUES ($1)", [(1,), (2,)])
    assert other.transaction_status == "open"
    with pytest.raises(seracdb.UniqueViolation):
        other.executemany("INSERT INTO t VALUES ($1)", [(3,), (1,)])
    assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
    other.commit()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_scripts_give_the_last_result(con):
    cursor = con.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); SELECT sum(a) FROM t")
    assert cursor.fetchall() == [(3,)]
    assert con.execute("").rowcount == -1
    with pytest.raises(seracdb.ProgrammingError):
        con.execute("SELECT 1; SELECT 2", ())


@pytest.mark.parametrize("parameters", [None, (1,)])
def test_the_first_statement_begins_a_transaction(con, parameters):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 0)")
    own = con.connect(autocommit=False)
    read = "SELECT n FROM t WHERE id = " + ("1" if parameters is None else "$1")
    for _ in range(3):
        assert own.transaction_status == "idle"
        (n,) = own.execute(read, parameters).fetchone()
        assert own.transaction_status == "open"
        con.execute("UPDATE t SET n = n + 10")
        assert own.execute(read, parameters).fetchone() == (n,)
        # What it would write rests on a value that is no more.
        with pytest.raises(seracdb.SerializationFailure):
            own.execute("UPDATE t SET n = $1 WHERE id = 1", (n + 1,))
        own.rollback()
    assert con.execute("SELECT n FROM t").fetchall() == [(30,)]
    own.execute("SHOW work_mem")
    assert own.transaction_status == "idle"


def test_changes_last_after_commit_alone(tmp_path):
    path = tmp_path / "db"
    with seracdb.connect(path) as con, seracdb.connect(path) as other:
        con.execute("CREATE TABLE t (a INT)")
        con.commit()
        con.execute("INSERT INTO t VALUES (1)")
        assert con.transaction_status == "open"
        assert other.execute("SELECT count(*) FROM t").fetchone() == (0,)
        con.rollback()
        assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
        con.execute("INSERT INTO t VALUES ($1)", (2,))
        con.commit()
        other.commit()
        assert other.execute("SELECT a FROM t").fetchall() == [(2,)]
        con.commit()
        con.rollback()
    with seracdb.connect(path) as con:
        assert con.execute("SELECT a FROM t").fetchall() == [(2,)]


def test_autocommit_can_be_set(con):
    assert con.autocommit is True
    con.execute("CREATE TABLE t (a INT)")
    con.autocommit = False
    con.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(seracdb.ProgrammingError):
        con.autocommit = True
    con.rollback()
    con.autocommit = True
    con.execute("INSERT INTO t VALUES (2)")
    con.rollback()
    assert con.execute("SELECT a FROM t").fetchall() == [(2,)]


def test_closed_objects_are_refused(con):
    cursor = con.cursor()
    cursor.close()
    assert cursor.closed
    with pytest.raises(seracdb.InterfaceError, match="cursor is closed"):
        cursor.execute("SELECT 1")
    other = con.connect()
    rows = other.execute("SELECT i FROM generate_series(1, 1000000) AS g (i)")
    statement = other.prepare("SELECT 1")
    other.close()
    other.close()
    assert other.closed and rows.closed
    for use in [rows.fetchone, other.cursor, other.commit, other.rollback, statement, lambda: other.execute("SELECT 1")]:
        with pytest.raises(seracdb.InterfaceError, match="connection is closed"):
            use()


def test_contexts_close(tmp_path):
    with seracdb.connect(tmp_path / "db") as con:
        with con.cursor() as cursor:
            cursor.execute("CREATE TABLE t (a INT)")
        assert cursor.closed
    assert con.closed
    with pytest.raises(ZeroDivisionError), seracdb.connect(tmp_path / "db") as con:
        con.execute("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError
    with seracdb.connect(tmp_path / "db") as con:
        assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_sizes_are_accepted(con):
    cursor = con.cursor()
    cursor.setinputsizes([25])
    cursor.setoutputsize(1000)
    cursor.setoutputsize(1000, 0)


def test_procedures_are_called_by_name(con):
    with pytest.raises(seracdb.ProgrammingError, match="no_such"):
        con.cursor().callproc("no_such", [1])


def test_a_cursor_streams(con):
    # Rows come as they are read: the first of them long before all could be there.
    cursor = con.execute("SELECT i FROM generate_series(1, 100000000) AS g (i)")
    assert cursor.fetchone() == (1,)
    assert cursor.rowcount == -1
    # The next statement of the cursor ends the query.
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]


def test_another_statement_keeps_the_rows_that_are_left(con):
    first = con.execute("SELECT i FROM generate_series(1, 50000) AS g (i)")
    assert first.fetchone() == (1,)
    second = con.execute("SELECT i FROM generate_series(1, 40000) AS g (i)")
    con.execute("CREATE TABLE t (a INT)")
    assert len(first.fetchall()) == 49_999
    assert len(second.fetchall()) == 40_000


def test_options(tmp_path):
    con = seracdb.connect(tmp_path / "db", durability="relaxed", memory_limit=1 << 30, threads=1)
    con.execute("CREATE TABLE t (a INT)")
    con.commit()
    with pytest.raises(seracdb.OperationalError, match="other options"):
        seracdb.connect(tmp_path / "db", durability="full")
    reader = seracdb.connect(tmp_path / "db", read_only=True)
    with pytest.raises(seracdb.InternalError, match="read-only"):
        reader.execute("INSERT INTO t VALUES (1)")
    reader.close()
    con.close()
    with pytest.raises(ValueError, match="durability"):
        seracdb.connect(durability="some")
    with pytest.raises(ValueError, match="thread"):
        seracdb.connect(threads=0)
    with pytest.raises(seracdb.ProgrammingError, match="no database"):
        seracdb.connect(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(seracdb.OperationalError):
        seracdb.connect(tmp_path / "file")


def test_a_path_is_not_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not empty"):
        seracdb.connect("")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_can_be_opened_again_after_closing(tmp_path):
    for round in range(3):
        with seracdb.connect(str(tmp_path / "db"), durability="off") as con:
            con.execute("CREATE TABLE IF NOT EXISTS t (a INT)")
            con.execute("INSERT INTO t VALUES ($1)", (round,))
            assert len(con.execute("SELECT * FROM t").fetchall()) == round + 1


def test_notices(con):
    con.execute("CREATE TABLE t (a INT)")
    con.execute("CREATE TABLE IF NOT EXISTS t (a INT)")
    assert [(severity, sqlstate) for severity, sqlstate, _ in con.notices()] == [("NOTICE", "42P07")]
    assert con.notices() == []
