"""Exceptions: their classes, and what they tell."""

import pickle

import pytest
import seracdb


@pytest.mark.parametrize(
    ("text", "cls", "sqlstate"),
    [
        ("SELEC 1", seracdb.ProgrammingError, "42601"),
        ("SELECT * FROM nowhere", seracdb.ProgrammingError, "42P01"),
        ("SELECT nothing FROM t", seracdb.ProgrammingError, "42703"),
        ("SELECT 1 / 0", seracdb.DataError, "22012"),
        ("SELECT 'x'::int", seracdb.DataError, "22P02"),
        ("INSERT INTO t VALUES (1, 1)", seracdb.UniqueViolation, "23505"),
        ("INSERT INTO t VALUES (2, NULL)", seracdb.NotNullViolation, "23502"),
        ("INSERT INTO t VALUES (2, -1)", seracdb.CheckViolation, "23514"),
        ("INSERT INTO child VALUES (5)", seracdb.ForeignKeyViolation, "23503"),
        ("SAVEPOINT a", seracdb.InternalError, "25P01"),
        ("CREATE TRIGGER a BEFORE INSERT ON t EXECUTE FUNCTION f()", seracdb.NotSupportedError, "0A000"),
    ],
)
def test_classes(con, text, cls, sqlstate):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL CHECK (a > 0))")
    con.execute("CREATE TABLE child (parent INT REFERENCES t)")
    con.execute("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(cls) as caught:
        con.execute(text)
    assert type(caught.value) is cls
    assert caught.value.sqlstate == sqlstate
    # The same with a parameter's way through.
    assert con.execute("SELECT count(*) FROM t WHERE a = $1", (1,)).fetchone() == (1,)


def test_details(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    con.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(seracdb.UniqueViolation) as caught:
        con.execute("INSERT INTO t VALUES ($1)", (1,))
    error = caught.value
    assert error.detail == "Key (id)=(1) already exists."
    assert error.hint is None
    assert (error.schema, error.table, error.name) == ("public", "t", "t_pkey")
    assert "DETAIL: Key (id)=(1)" in str(error)


def test_positions(con):
    with pytest.raises(seracdb.ProgrammingError) as caught:
        con.execute("SELECT 1,\n  missing")
    assert caught.value.position == (2, 3)
    assert "(line 2, column 3)" in str(caught.value)
    # Names of parameters do not move what comes after them.
    con.execute("CREATE TABLE t (a INT)")
    with pytest.raises(seracdb.ProgrammingError) as caught:
        con.execute("SELECT :parameter::int, missing FROM t", {"parameter": 1})
    assert caught.value.position == (1, 25)


def test_errors_are_pickled(con):
    with pytest.raises(seracdb.DataError) as caught:
        con.execute("SELECT 1 / 0")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is seracdb.DataError and copy.sqlstate == "22012" and str(copy) == str(caught.value)


def test_an_error_may_come_while_rows_are_read(con):
    cursor = con.execute("SELECT 1 / (90000 - i) FROM generate_series(1, 100000) AS g (i)")
    with pytest.raises(seracdb.DataError, match="division by zero"):
        cursor.fetchall()
    cursor = con.execute("SELECT 1 / (90000 - i) FROM generate_series(1, 100000) AS g (i)")
    with pytest.raises(seracdb.DataError, match="division by zero"):
        cursor.arrow()
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_failed_transaction_waits_for_its_end():
    with seracdb.connect() as con:
        con.execute("CREATE TABLE t (a INT)")
        with pytest.raises(seracdb.DataError):
            con.execute("INSERT INTO t VALUES (1 / 0)")
        assert con.transaction_status == "failed"
        with pytest.raises(seracdb.InternalError, match="aborted"):
            con.execute("SELECT 1")
        with pytest.raises(seracdb.InternalError, match="rolled back"):
            con.commit()
        assert con.transaction_status == "idle"
        with pytest.raises(seracdb.ProgrammingError):
            con.execute("SELECT * FROM t")
        # Also a query that failed.
        assert con.transaction_status == "failed"
        con.rollback()
