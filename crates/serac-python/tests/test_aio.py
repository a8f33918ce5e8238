"""The package for asyncio."""

import asyncio
import random
import time
from typing import Any

import pytest
import seracdb
from seracdb import aio

# Runs for minutes.
LONG = "SELECT count(*) FROM generate_series(1, 2000000000) AS a (i) WHERE i % 7 = 8"


def run(main):
    """Runs a coroutine to its end, which must come soon."""
    return asyncio.run(asyncio.wait_for(main, 120))


def test_the_everyday_surface(tmp_path):
    async def main():
        async with await aio.connect(tmp_path / "db") as con:
            await con.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
            cursor = await con.executemany("INSERT INTO t VALUES ($1, $2)", [(i, f"n{i}") for i in range(1_000)])
            assert cursor.rowcount == 1_000
            cursor = await con.execute("SELECT * FROM t WHERE id < :most ORDER BY id", {"most": 700})
            assert [column[0] for column in cursor.description] == ["id", "name"]
            assert await cursor.fetchone() == (0, "n0")
            assert await cursor.fetchmany(2) == [(1, "n1"), (2, "n2")] and cursor.rownumber == 3
            seen = []
            async for row in cursor:
                seen.append(row[0])
                if row[0] == 10:
                    break
            assert seen == list(range(3, 11)) and cursor.rownumber == 11
            # The rest is where it was.
            assert await cursor.fetchone() == (11, "n11") and len(await cursor.fetchall()) == 688
            assert (await (await con.execute("SELECT id FROM t")).pl()).height == 1_000
            assert (await (await con.execute("SELECT id FROM t")).arrow()).num_rows == 1_000
            assert len(await (await con.execute("SELECT id FROM t")).df()) == 1_000
            assert len((await (await con.execute("SELECT id FROM t")).fetchnumpy())["id"]) == 1_000
            name = await con.prepare("SELECT name FROM t WHERE id = $1")
            assert name.is_point and await name(7) == [("n7",)] and await name.one(-1) is None
            assert await con.append("t", (await con.execute("SELECT id + 1000 AS id, name FROM t"))._cursor) == 1_000
            assert (await con.table("t").scan(["id"])).pl().height == 2_000
            await con.commit()
            assert (await con.freeze("t")).fetchall()[0][1] == "t" and len(await con.blocks("t")) > 0
            assert (await con.checkpoint()).fetchall()[0][1] == 2_000 and len(await con.metrics()) > 10
            assert (await con.backup(tmp_path / "copy")).fetchall()[0][1] == 2_000
            assert "SeracScanExec" in str(await con.explain("SELECT name FROM t"))
            async with con.cursor() as other:
                await other.execute("SELECT 1")
            assert other.closed
            server = await con.serve(pg="127.0.0.1:0")
            server.stop()
        assert con.closed
        with pytest.raises(seracdb.InterfaceError):
            await con.execute("SELECT 1")
        await con.close()
        with pytest.raises(seracdb.ProgrammingError, match="there is no database"):
            await aio.connect(tmp_path / "missing", read_only=True)

    run(main())


def test_the_event_loop_goes_on():
    async def main():
        async with await aio.connect(autocommit=True) as con:
            running = asyncio.create_task(con.execute(LONG))
            ticks, end = 0, time.monotonic() + 0.5
            longest = 0.0
            while time.monotonic() < end:
                before = time.monotonic()
                await asyncio.sleep(0)
                longest = max(longest, time.monotonic() - before)
                ticks += 1
            assert ticks > 100 and longest < 0.4 and not running.done()
            con.cancel()
            with pytest.raises(seracdb.QueryCanceled):
                await running

    run(main())


def test_a_cancelled_task_cancels_its_statement():
    async def main():
        async with await aio.connect(autocommit=True) as con:
            await con.execute("CREATE TABLE t (a INT)")
            for pause in (0, 0.001, 0.05, 0.3):
                began = time.monotonic()
                running = asyncio.create_task(con.execute(LONG))
                await asyncio.sleep(pause)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                assert time.monotonic() - began < 30
                # The connection is free at once.
                assert await (await con.execute("SELECT 1")).fetchall() == [(1,)]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(con.execute(LONG), 0.1)
            # A transaction is rolled back, and the connection is usable.
            async def change():
                async with con.transaction():
                    await con.execute("INSERT INTO t VALUES (1)")
                    await con.execute(LONG)

            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(change(), 0.3)
            assert await (await con.execute("SELECT count(*) FROM t")).fetchone() == (0,)

    run(main())


def test_tasks_share_a_connection():
    async def main():
        async with await aio.connect(autocommit=True) as con:
            await con.execute("CREATE TABLE t (task INT, n INT)")

            async def work(task):
                for n in range(5):
                    async with con.transaction():
                        await con.execute("INSERT INTO t VALUES ($1, $2)", (task, n))
                        # No other task's statement comes between.
                        await asyncio.sleep(0)
                        mine = await (await con.execute("SELECT task, n FROM t ORDER BY n DESC, task")).fetchall()
                        assert (task, n) in mine
                        if n == 4:
                            raise aio.Rollback

            await asyncio.gather(*(work(task) for task in range(20)))
            rows = await (await con.execute("SELECT task, count(*), max(n) FROM t GROUP BY task")).fetchall()
            assert sorted(rows) == [(task, 4, 3) for task in range(20)]

    run(main())


def test_tasks_inside_of_a_transaction_belong_to_it():
    async def main():
        async with await aio.connect(autocommit=True) as con:
            await con.execute("CREATE TABLE t (n INT PRIMARY KEY)")
            order = []

            async def outside():
                await con.execute("INSERT INTO t VALUES (100)")
                order.append("outside")

            async with con.transaction() as block:
                await con.execute("INSERT INTO t VALUES (1)")
                await asyncio.gather(*(con.execute("INSERT INTO t VALUES ($1)", (n,)) for n in range(2, 6)))
                with pytest.raises(seracdb.UniqueViolation):
                    async with con.transaction():
                        await con.execute("INSERT INTO t VALUES (1)")
                async with con.transaction() as inner:
                    await con.execute("INSERT INTO t VALUES (50)")
                    raise aio.Rollback(inner)
                order.append("inside")
                with pytest.raises(seracdb.ProgrammingError):
                    await con.transact(lambda con: con.execute("SELECT 1"))
            assert block is not None
            await outside()
            assert order == ["inside", "outside"]
            rows = await (await con.execute("SELECT n FROM t ORDER BY n")).fetchall()
            assert rows == [(1,), (2,), (3,), (4,), (5,), (100,)]

    run(main())


def test_many_tasks_with_conflicts():
    """Transfers of many tasks by a pool: the sum stays."""

    async def main():
        accounts = 10
        async with await aio.create_pool(size=6, autocommit=True) as pool:
            async with pool.connection() as con:
                await con.execute("CREATE TABLE account (id INT PRIMARY KEY, balance INT)")
                await con.executemany("INSERT INTO account VALUES ($1, 100)", [(i,) for i in range(accounts)])
            in_use = most = 0

            async def transfer(seed):
                nonlocal in_use, most
                choose = random.Random(seed)
                one, other = choose.sample(range(accounts), 2)

                async def move(con):
                    cursor = await con.execute("SELECT balance FROM account WHERE id = $1", (one,))
                    (balance,) = await cursor.fetchone()
                    await asyncio.sleep(0)
                    await con.execute("UPDATE account SET balance = $2 WHERE id = $1", (one, balance - 1))
                    await con.execute("UPDATE account SET balance = balance + 1 WHERE id = $1", (other,))
                    return seed

                async with pool.connection() as con:
                    in_use += 1
                    most = max(most, in_use)
                    try:
                        assert await con.transact(move, attempts=1_000) == seed
                    finally:
                        in_use -= 1

            await asyncio.gather(*(transfer(seed) for seed in range(200)))
            assert 1 < most <= 6
            async with pool.connection() as con:
                total = await (await con.execute("SELECT sum(balance), count(*) FROM account")).fetchone()
                assert total == (100 * accounts, accounts)
        with pytest.raises(seracdb.InterfaceError):
            async with pool.connection():
                pass

    run(main())


def test_a_transaction_ends_although_its_task_is_cancelled_while_another_statement_runs():
    async def main():
        async with await aio.connect(autocommit=True) as con:
            await con.execute("CREATE TABLE t (n INT)")
            entered, late = asyncio.Event(), []

            async def leave(error):
                async with con.transaction():
                    await con.execute("INSERT INTO t VALUES (1)")
                    # It still runs when the block is left, and has the connection.
                    late.append(asyncio.create_task(con.execute("SELECT pg_sleep(0.3)")))
                    await asyncio.sleep(0.05)
                    entered.set()
                    if error:
                        raise ValueError

            for error in (False, True):
                entered.clear()
                task = asyncio.create_task(leave(error))
                await entered.wait()
                for _ in range(3):
                    await asyncio.sleep(0)
                    task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await late.pop()
                assert con._connection.transaction_status == "idle"
                assert await (await con.execute("SELECT count(*) FROM t")).fetchone() == (0,)

    run(main())


def test_a_statement_that_comes_too_late_for_its_transaction_is_no_part_of_the_next():
    async def main():
        async with await aio.connect() as con:
            await con.execute("CREATE TABLE t (n INT)")
            await con.commit()
            late = []

            async def first():
                async with con.transaction():
                    await con.execute("INSERT INTO t VALUES (1)")
                    # Its turn comes when the block has been left.
                    asyncio.get_running_loop().call_soon(
                        lambda: late.append(asyncio.create_task(con.execute("INSERT INTO t VALUES (2)")))
                    )

            async def second():
                async with con.transaction() as block:
                    assert not block._is_savepoint()
                    await con.execute("INSERT INTO t VALUES (3)")

            await asyncio.gather(first(), second())
            await late.pop()
            await con.rollback()
            assert await (await con.execute("SELECT n FROM t ORDER BY n")).fetchall() == [(1,), (3,)]

    run(main())


def test_no_rows_are_lost_when_a_task_that_fetches_is_cancelled():
    async def main():
        async with await aio.connect() as con:
            cursor = await con.execute("SELECT i FROM generate_series(1, 100) AS g (i)")
            seen, cancelled = [], 0

            async def one():
                return [await cursor.fetchone()]

            for fetch in (lambda: cursor.fetchmany(7), one, lambda: cursor.fetchmany(200), cursor.fetchall):
                for pauses in (1, 3):
                    seen += await cursor.fetchmany(10)
                    task = asyncio.create_task(fetch())
                    for _ in range(pauses):
                        await asyncio.sleep(0)
                    task.cancel()
                    try:
                        seen += await task
                    except asyncio.CancelledError:
                        cancelled += 1
            assert cancelled >= 3 and cursor.rownumber == len(seen)
            assert seen + await cursor.fetchall() == [(i,) for i in range(1, 101)]
            # Rows of a statement before are not those of the next one.
            await cursor.execute("SELECT i FROM generate_series(1, 100) AS g (i)")
            task = asyncio.create_task(cursor.fetchmany(7))
            await asyncio.sleep(0)
            task.cancel()
            await cursor.execute("SELECT 'next'")
            assert await cursor.fetchall() == [("next",)]

    run(main())


def test_tasks_may_close_a_connection_together():
    async def main():
        con = await aio.connect()
        running = asyncio.create_task(con.execute("SELECT pg_sleep(0.1)"))
        await asyncio.sleep(0.02)
        await asyncio.gather(running, *(con.close() for _ in range(3)))
        assert con.closed

    run(main())


def test_a_hundred_connections_run_beside_each_other():
    async def main():
        async with await aio.connect(autocommit=True) as con:
            others = [await con.connect() for _ in range(100)]
            began = time.monotonic()
            await asyncio.gather(*(other.execute("SELECT pg_sleep(0.5)") for other in others))
            assert time.monotonic() - began < 20
            await asyncio.gather(*(other.close() for other in others))

    run(main())


def test_no_thread_is_left():
    import threading

    async def main():
        async with await aio.connect() as con:
            await con.execute("SELECT 1")
            assert any(thread.name.startswith("seracdb-aio") for thread in threading.enumerate())

    run(main())
    end = time.monotonic() + 10
    while any(thread.name.startswith("seracdb-aio") for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_rows_by_key_without_sql():
    async def main():
        async with await aio.connect() as con:
            await con.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
            await con.commit()
            tx = con.transaction()
            table: Any = None
            async with tx:
                table = tx.table("t")
                assert (table.schema, table.name) == ("public", "t")
                await table.insert({"id": 1, "name": "one"})
                assert await table.insert({"id": 2, "name": "two"}, returning=["id"]) == {"id": 2}
                assert await table.get(2) == {"id": 2, "name": "two"}
                assert await table.update(2, {"name": "zwei"}) and not await table.update(3, {"name": ""})
                assert await table.scan(columns=["name"], reverse=True) == [{"name": "zwei"}, {"name": "one"}]
                assert await table.delete(1) and not await table.delete(1)
            with pytest.raises(seracdb.InterfaceError):
                await table.get(2)
            with pytest.raises(seracdb.InterfaceError):
                tx.table("t")
            assert await (await con.execute("SELECT * FROM t")).fetchall() == [(2, "zwei")]

    run(main())
