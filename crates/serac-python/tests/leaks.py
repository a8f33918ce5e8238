"""Repeats each call many times, and tells whether memory grows.

`python tests/leaks.py --iterations 100000` repeats the calls that take microseconds so often, and
dearer ones less, each by its cost. Growth is measured twice: Python's objects by tracemalloc, and
the whole process by its resident memory. `test_memory.py` runs the same calls a few times.
"""

import argparse
import gc
import itertools
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import polars
import pyarrow
import seracdb

# Growth that is none: pools and caches of Python, of the allocator and of the database.
PYTHON_BYTES = 128 << 10
RESIDENT_BYTES = 24 << 20
# Seconds in which the database gives back what transactions have left that were rolled back.
PATIENCE = 30

BIG = "SELECT i, 'row ' || i AS name FROM generate_series(1, 10000000) AS g (i)"


class Call(NamedTuple):
    """A call that is repeated."""

    step: Callable[[], Any]
    # How many of the cheapest calls take as long.
    cost: int = 1


class Grown(NamedTuple):
    """How much memory has grown, in bytes."""

    python: int
    resident: int

    def is_leak(self) -> bool:
        return self.python > PYTHON_BYTES or self.resident > RESIDENT_BYTES


def resident() -> int:
    """Bytes of the process's memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def expect(error: type[BaseException], call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def calls(con: seracdb.Connection) -> Iterator[tuple[str, Call]]:
    """Every call of the package, on a connection with autocommit."""
    con.execute(
        """
        DROP TABLE IF EXISTS kept, filled;
        CREATE TABLE kept (id BIGINT PRIMARY KEY, half DOUBLE PRECISION, name TEXT, price NUMERIC(10, 2));
        INSERT INTO kept SELECT i, i / 2.0, 'name ' || i, i / 100.0 FROM generate_series(0, 1499) AS g (i);
        FREEZE TABLE kept;
        CREATE TABLE filled (id BIGINT PRIMARY KEY, name TEXT)
        """
    )
    cursor = con.cursor()
    select = con.prepare("SELECT * FROM kept WHERE id = $1")
    named = con.prepare("SELECT name FROM kept WHERE id = :id")
    planned = con.prepare("SELECT count(*) FROM kept WHERE half < $1")
    update = con.prepare("UPDATE kept SET half = half + 1 WHERE id = $1")
    keys = itertools.count()
    insert, delete = con.prepare("INSERT INTO filled VALUES ($1, $2)"), con.prepare("DELETE FROM filled WHERE id = $1")
    frame = pyarrow.table({"id": list(range(50)), "name": [f"name {i}" for i in range(50)]})
    polars_frame = polars.from_arrow(frame)
    doubled = pyarrow.table({"id": [1, 1], "name": ["a", "b"]})

    yield "cursor", Call(lambda: con.cursor().close())
    yield "description", Call(lambda: cursor.description)
    yield "key, prepared", Call(lambda: select(7))
    yield "key, first row", Call(lambda: select.one(7))
    yield "key, by name", Call(lambda: named(id=7))
    yield "key, a value of another type", Call(lambda: select(7.0), 100)
    yield "key, a wrong value", Call(lambda: expect(seracdb.DataError, select, "no number"), 100)
    yield "key, a wrong call", Call(lambda: expect(seracdb.ProgrammingError, select, 1, 2), 2)
    yield "key, by a cursor", Call(lambda: cursor.execute("SELECT * FROM kept WHERE id = $1", (7,)).fetchall(), 2)
    yield "key, as text", Call(lambda: con.execute("SELECT * FROM kept WHERE id = 7").fetchone(), 10)
    yield "update", Call(lambda: update(7), 2)

    def insert_and_delete() -> None:
        key = next(keys) + 1000
        insert(key, "a name")
        delete(key)

    yield "insert and delete", Call(insert_and_delete, 4)
    yield "a violated key", Call(lambda: expect(seracdb.UniqueViolation, con.execute, "INSERT INTO kept VALUES (1)"), 50)
    yield "planned", Call(lambda: planned(9.0), 100)
    yield "a wrong text", Call(lambda: expect(seracdb.ProgrammingError, con.execute, "SELEC 1"), 5)
    yield "a missing table", Call(lambda: expect(seracdb.ProgrammingError, con.execute, "SELECT * FROM none"), 50)
    yield "an error among rows", Call(
        lambda: expect(seracdb.DataError, lambda: con.execute("SELECT 1 / (7 - id) FROM kept").fetchall()), 100
    )
    yield "texts that differ", Call(lambda: con.execute(f"SELECT {next(keys)}").fetchone(), 100)
    yield "statements that differ", Call(lambda: con.execute(f"SELECT $1::int AS c{next(keys)}", (1,)).fetchone(), 100)
    yield "prepare", Call(lambda: con.prepare("SELECT name FROM kept WHERE half < $1"), 100)
    parameters = (1, 2**70, 1.5, "text", b"bytes", None, True, [1, None], {"a": [1]})
    marks = ", ".join(f"${at}" for at in range(1, len(parameters) + 1))
    yield "parameters of many types", Call(lambda: con.execute(f"SELECT {marks}", parameters).fetchone(), 100)
    yield "executemany", Call(
        lambda: con.executemany("UPDATE kept SET half = $2 WHERE id = $1", [(i, 1.0) for i in range(20)]), 100
    )

    def transaction(error: type[BaseException] | None = None) -> None:
        with con.transaction():
            update(7)
            with con.transaction():
                update(8)
            if error is not None:
                raise error

    yield "a transaction", Call(transaction, 20)
    yield "a transaction rolled back", Call(lambda: transaction(seracdb.Rollback), 20)
    yield "a transaction that fails", Call(lambda: expect(ZeroDivisionError, transaction, ZeroDivisionError), 20)

    def conflict() -> None:
        attempts = itertools.count()

        def work(con: seracdb.Connection) -> None:
            update(7)
            if next(attempts) == 0:
                raise seracdb.SerializationFailure("once more", sqlstate="40001")

        con.transact(work)

    yield "a transaction run again", Call(conflict, 200)
    yield "commit", Call(con.commit)
    yield "rollback", Call(con.rollback)
    yield "notices", Call(lambda: (con.execute("CREATE TABLE IF NOT EXISTS kept (a INT)"), con.notices()), 20)

    everything = "SELECT * FROM kept"
    yield "rows", Call(lambda: con.execute(everything).fetchmany(10), 200)
    yield "all rows", Call(lambda: con.execute(everything).fetchall(), 2000)
    yield "iteration", Call(lambda: [row for row in con.execute(everything)], 2000)
    yield "arrow", Call(lambda: con.execute(everything).arrow(), 200)
    yield "pl", Call(lambda: con.execute(everything).pl(), 500)
    yield "df", Call(lambda: con.execute(everything).df(), 500)
    yield "fetchnumpy", Call(lambda: con.execute(everything).fetchnumpy(), 500)
    yield "a schema", Call(lambda: pyarrow.schema(con.execute(everything)), 100)
    yield "a stream that nobody takes", Call(lambda: con.execute(everything).__arrow_c_stream__(), 100)
    yield "a stream that is not read", Call(lambda: con.execute(BIG).reader(), 300)
    yield "a stream that is read a little", Call(lambda: con.execute(BIG).reader().read_next_batch(), 500)
    yield "rows that are not read", Call(lambda: con.execute(BIG).fetchone(), 500)
    yield "rows beside another statement", Call(
        lambda: [con.execute("SELECT i FROM generate_series(1, 20000) AS g (i)"), con.execute("SELECT 1").fetchone()], 500
    )
    yield "scan", Call(lambda: con.table("kept").scan().arrow(), 50)
    yield "scan with conditions", Call(lambda: con.table("kept").scan(["id"], [("half", "<", 9.0)]).arrow(), 50)
    yield "scan as stored", Call(lambda: con.table("kept").scan(stored=True).arrow(), 50)
    yield "a scan that is not read", Call(lambda: con.table("kept").scan().__arrow_c_stream__(), 20)
    yield "a wrong scan", Call(lambda: expect(seracdb.ProgrammingError, con.table("none").scan), 10)

    def append(of: Any) -> None:
        with con.transaction():
            con.append("filled", of)
            raise seracdb.Rollback

    def broken() -> Iterator[pyarrow.RecordBatch]:
        yield from frame.to_batches()
        raise ValueError("no more")

    def broken_frame() -> pyarrow.RecordBatchReader:
        return pyarrow.RecordBatchReader.from_batches(frame.schema, broken())

    yield "append", Call(lambda: append(frame), 200)
    yield "append a frame of Polars", Call(lambda: append(polars_frame), 200)
    some = "SELECT id, name FROM kept WHERE id < 1200"
    yield "append rows of the database", Call(lambda: append(con.connect().execute(some)), 1000)
    yield "append what violates a key", Call(lambda: expect(seracdb.UniqueViolation, con.append, "filled", doubled), 200)
    yield "append what fails", Call(lambda: expect(seracdb.Error, lambda: con.append("filled", broken_frame())), 200)
    yield "append what is no frame", Call(lambda: expect(TypeError, con.append, "filled", 7))

    yield "a frame by name", Call(lambda: (frame, con.execute("SELECT sum(id) FROM frame").fetchone()), 200)
    yield "a frame made by code", Call(
        lambda: expect(seracdb.Error, lambda of: con.execute("SELECT * FROM of").fetchall(), broken_frame()), 200
    )
    yield "a registered frame", Call(
        lambda: (con.register("lent", polars_frame), con.execute("SELECT * FROM lent").arrow(), con.unregister("lent")), 200
    )

    class Total:
        def __init__(self) -> None:
            self.total = 0

        def step(self, value: int) -> None:
            self.total += value

        def finish(self) -> int:
            return self.total

    def function() -> None:
        con.create_function("half_of", lambda x: x // 2, [int], int)
        con.create_aggregate("total", Total)
        con.create_table_function("lines", lambda n: ((i,) for i in range(n)), [int], {"i": int})
        assert con.execute("SELECT total(half_of(i)) FROM lines(10)").fetchone() == (20,)

    yield "functions", Call(function, 500)
    con.create_function("failing", lambda x: 1 // x, [int], int)
    yield "a function that fails", Call(lambda: expect(seracdb.Error, con.execute, "SELECT failing(0)"), 100)
    con.create_function("of_arrays", lambda x: x, [int], int, kind="arrow")
    yield "a function of arrays", Call(lambda: con.execute("SELECT sum(of_arrays(id)) FROM kept").fetchone(), 300)

    def cancelled() -> None:
        timer = threading.Timer(0.001, con.cancel)
        timer.start()
        try:
            con.execute("SELECT count(*) FROM generate_series(1, 100000000) AS g (i) WHERE i % 7 = 8").fetchone()
        except seracdb.QueryCanceled:
            pass
        finally:
            timer.join()

    yield "a cancelled query", Call(cancelled, 2000)

    def in_a_circle() -> None:
        rows = con.execute(everything)
        circle: list[Any] = [rows, rows.fetchone()]
        circle.append(circle)

    yield "a cursor in a circle", Call(in_a_circle, 200)

    def another() -> None:
        with con.connect() as other:
            other.execute("SELECT 1").fetchone()

    yield "another connection", Call(another, 100)
    yield "another connection that is not closed", Call(lambda: con.connect().execute(BIG), 500)
    yield "a database in memory", Call(lambda: seracdb.connect().close(), 1000)


def grown(call: Call, iterations: int) -> Grown:
    """How much memory grows while a call is repeated, once it is warm."""
    times = max(iterations // call.cost, 20)
    for _ in range(max(times // 4, 10)):
        call.step()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0], resident()
    for _ in range(times):
        call.step()
    gc.collect()
    python = tracemalloc.get_traced_memory()[0] - before[0]
    tracemalloc.stop()
    end = time.monotonic() + PATIENCE
    while resident() - before[1] > RESIDENT_BYTES and time.monotonic() < end:
        time.sleep(0.2)
    return Grown(python, resident() - before[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=100_000, help="of the cheapest calls")
    parser.add_argument("--only", default="", help="calls whose name has this text")
    options = parser.parse_args()
    leaks = 0
    print(f"{'call':40} {'times':>8} {'seconds':>8} {'Python, bytes':>14} {'resident, KiB':>14}")
    with seracdb.connect(autocommit=True) as con:
        for name, call in calls(con):
            if options.only not in name:
                continue
            began = time.monotonic()
            result = grown(call, options.iterations)
            took = time.monotonic() - began
            times = max(options.iterations // call.cost, 20)
            told = " leaks" if result.is_leak() else ""
            print(f"{name:40} {times:8} {took:8.1f} {result.python:14} {result.resident >> 10:14}{told}", flush=True)
            leaks += result.is_leak()
    print(f"{leaks} leaks")
    return min(leaks, 1)


if __name__ == "__main__":
    sys.exit(main())
