"""Nothing is left behind by statements, results and frames."""

import gc
import os
import sys
import weakref

import pyarrow
import pytest
import seracdb

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")


def resident():
    """Bytes of the process's memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(step, *, times):
    """Bytes by which memory grows while a step is repeated, once it is warm."""
    for _ in range(times // 4):
        step()
    gc.collect()
    before = resident()
    for _ in range(times):
        step()
    gc.collect()
    return resident() - before


def test_statements_and_results(numbers):
    select = numbers.prepare("SELECT * FROM numbers WHERE id = $1")
    frame = pyarrow.table({"id": list(range(100))})
    numbers.execute("CREATE TABLE t (id BIGINT)")

    def append():
        with numbers.transaction():
            numbers.append("t", frame)
            raise seracdb.Rollback

    def wrong():
        with pytest.raises(seracdb.DataError):
            select("no number")

    steps = [
        (lambda: select(5), 20_000),
        (lambda: numbers.execute("SELECT name FROM numbers WHERE id = $1", (5,)).fetchall(), 5_000),
        (lambda: numbers.execute("SELECT name FROM numbers WHERE half < $1", (9.0,)).fetchone(), 200),
        (lambda: numbers.execute("SELECT * FROM numbers").arrow(), 100),
        (lambda: numbers.table("numbers").scan().arrow(), 200),
        (wrong, 1_000),
        (append, 200),
    ]
    for step, times in steps:
        assert grown(step, times=times) < 16 << 20


def test_references_are_given_back(con):
    value = "a text of some length that nobody shares"
    select = con.prepare("SELECT $1::text")
    con.execute("CREATE TABLE t (name TEXT PRIMARY KEY)")
    insert = con.prepare("INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING")
    before = sys.getrefcount(value)
    for _ in range(100):
        select(value)
        insert(value)
        con.execute("SELECT $1", (value,)).fetchall()
    assert sys.getrefcount(value) == before


def test_objects_go_when_nobody_has_them(con):
    other = con.connect()
    cursor = other.execute("SELECT i FROM generate_series(1, 1000000) AS g (i)")
    # A circle through the connection's attributes.
    other.last = cursor
    gone = [weakref.ref(other), weakref.ref(cursor)]
    del other, cursor
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
