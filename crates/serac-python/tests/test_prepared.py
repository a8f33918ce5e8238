"""Prepared statements as functions."""

from decimal import Decimal

import pytest
import seracdb


@pytest.fixture
def t(con):
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, name TEXT)")
    con.execute("INSERT INTO t SELECT i, 0, 'n' || i FROM generate_series(1, 100) AS g (i)")
    return con


def test_statements_on_keys(t):
    select = t.prepare("SELECT id, n, name FROM t WHERE id = $1")
    assert select.is_point and select.sql == "SELECT id, n, name FROM t WHERE id = $1"
    assert select(7) == [(7, 0, "n7")]
    assert select.one(7) == (7, 0, "n7")
    assert select(1000) == [] and select.one(1000) is None
    update = t.prepare("UPDATE t SET n = n + $2 WHERE id = $1")
    assert update(7, 5) == 1 and update(1000, 5) == 0
    assert t.prepare("UPDATE t SET n = n + $2 WHERE id = $1 RETURNING n").one(7, 1) == (6,)
    insert = t.prepare("INSERT INTO t VALUES ($1, $2, $3)")
    assert insert(101, 1, None) == 1
    with pytest.raises(seracdb.UniqueViolation):
        insert(101, 1, None)
    assert t.prepare("DELETE FROM t WHERE id = $1")(101) == 1
    assert t.prepare("SELECT id FROM t WHERE id >= $1 AND id < $2 ORDER BY id")(3, 6) == [(3,), (4,), (5,)]


def test_any_other_statement(t):
    total = t.prepare("SELECT sum(n), count(*) FROM t WHERE name LIKE $1")
    assert not total.is_point
    assert total("n1%") == [(0, 12)]
    assert total.one("n%") == (0, 100)
    assert t.prepare("UPDATE t SET n = n + 1 WHERE name LIKE $1")("n1%") == 12
    assert len(t.prepare("SELECT i FROM generate_series(1, $1) AS g (i)")(20_000)) == 20_000


def test_names(t):
    select = t.prepare("SELECT name FROM t WHERE id = :id")
    assert select(id=3) == [("n3",)] and select(3) == [("n3",)]
    with pytest.raises(seracdb.ProgrammingError, match='"id"'):
        select(key=3)
    with pytest.raises(seracdb.ProgrammingError, match="without names"):
        t.prepare("SELECT name FROM t WHERE id = $1")(id=3)


def test_wrong_calls(t):
    with pytest.raises(seracdb.ProgrammingError):
        t.prepare("")
    with pytest.raises(seracdb.ProgrammingError):
        t.prepare("SELECT 1; SELECT 2")
    with pytest.raises(seracdb.ProgrammingError, match="1 parameters, 2 are given"):
        t.prepare("SELECT name FROM t WHERE id = $1")(1, 2)
    with pytest.raises(seracdb.ProgrammingError, match="no rows"):
        t.prepare("DELETE FROM t WHERE id = $1").one(1)


def test_parameters_of_other_types_are_converted(t):
    select = t.prepare("SELECT id FROM t WHERE id = $1")
    assert select("7") == [(7,)] and select(7.0) == [(7,)] and select(None) == []
    assert select(2**80) == []


def test_statements_follow_definitions(t):
    select = t.prepare("SELECT * FROM t WHERE id = $1")
    assert select(1) == [(1, 0, "n1")]
    t.execute("ALTER TABLE t ADD COLUMN more INT DEFAULT 5")
    assert select(1) == [(1, 0, "n1", 5)]
    by_name = t.prepare("UPDATE t SET more = $2 WHERE id = $1")
    assert by_name(1, 6) == 1
    t.execute("ALTER TABLE t ALTER COLUMN more TYPE TEXT USING more::text")
    assert by_name(1, "seven") == 1
    assert select(1) == [(1, 0, "n1", "seven")]
    t.execute("DROP TABLE t")
    with pytest.raises(seracdb.ProgrammingError):
        select(1)


def test_values_follow_definitions(t):
    """A value that was made for a type is none of another, though it has the same bits."""
    other = t.connect()
    t.execute("CREATE TABLE item (id INT PRIMARY KEY, v NUMERIC(10, 2))")
    insert = t.prepare("INSERT INTO item VALUES ($1, $2)")
    insert(1, Decimal("1.50"))
    other.execute("DROP TABLE item; CREATE TABLE item (id INT PRIMARY KEY, v NUMERIC(10, 3))")
    insert(2, Decimal("1.50"))
    assert t.execute("SELECT * FROM item").fetchall() == [(2, Decimal("1.500"))]
    other.execute("DROP TABLE item; CREATE TABLE item (id INT PRIMARY KEY, v INT)")
    with t.transaction():
        insert(3, 7)
    assert t.execute("SELECT * FROM item").fetchall() == [(3, 7)]
    other.execute("DROP TABLE item; CREATE TABLE item (id INT PRIMARY KEY, v DATE)")
    with pytest.raises(seracdb.ProgrammingError, match="type"):
        insert(4, 7)
    assert t.execute("SELECT * FROM item").fetchall() == []


def test_statements_in_transactions(t):
    con = t.connect(autocommit=False)
    update = con.prepare("UPDATE t SET n = $2 WHERE id = $1")
    select = con.prepare("SELECT n FROM t WHERE id = $1")
    assert select.one(1) == (0,) and con.transaction_status == "open"
    update(1, 5)
    assert select.one(1) == (5,)
    con.rollback()
    assert con.transaction_status == "idle"
    assert select.one(1) == (0,)
    con.rollback()
    with con.transaction():
        update(1, 6)
    assert t.execute("SELECT n FROM t WHERE id = 1").fetchone() == (6,)


def test_a_conflict_is_told(t):
    one, other = t.connect(autocommit=False), t.connect(autocommit=False)
    update = [con.prepare("UPDATE t SET n = n + 1 WHERE id = $1") for con in (one, other)]
    update[0](1)
    with pytest.raises(seracdb.SerializationFailure):
        update[1](1)
    other.rollback()
    one.commit()
    update[1](1)
    other.commit()
    assert t.execute("SELECT n FROM t WHERE id = 1").fetchone() == (2,)


def test_statements_run_while_rows_are_read(t):
    cursor = t.execute("SELECT i FROM generate_series(1, 100000) AS g (i)")
    assert cursor.fetchone() == (1,)
    assert t.prepare("SELECT n FROM t WHERE id = $1")(1) == [(0,)]
    assert len(cursor.fetchall()) == 99_999


def test_commits_of_statements_are_durable(tmp_path):
    with seracdb.connect(tmp_path / "db", autocommit=True) as con:
        con.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        insert = con.prepare("INSERT INTO t VALUES ($1)")
        for key in range(20):
            insert(key)
    with seracdb.connect(tmp_path / "db") as con:
        assert con.execute("SELECT count(*) FROM t").fetchone() == (20,)
