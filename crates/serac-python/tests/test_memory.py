"""Nothing is left behind by statements, results and frames."""

import gc
import os
import sys
import weakref

import leaks
import pytest

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")


def test_calls(con):
    """Each call of the package again and again; `leaks.py` repeats them 100,000 times."""
    names = []
    for name, call in leaks.calls(con):
        names.append(name)
        assert not leaks.grown(call, 100).is_leak(), name
    assert len(names) == len(set(names)) > 50


def test_a_leak_is_seen():
    kept = []
    assert leaks.grown(leaks.Call(lambda: kept.append(bytes(5000))), 200).is_leak()


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
