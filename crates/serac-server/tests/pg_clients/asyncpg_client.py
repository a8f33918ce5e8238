"""asyncpg against the server. Argument: the port."""

import asyncio
import datetime as dt
import decimal
import json
import sys
import uuid

import asyncpg

PORT = int(sys.argv[1])


def connect():
    return asyncpg.connect(host="127.0.0.1", port=PORT, user="ada", database="db", timeout=20)


async def raises(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


async def statements(c):
    """Prepared statements with all types, and what is known of them."""
    await c.execute(
        "CREATE TABLE types (id INTEGER PRIMARY KEY, b BOOLEAN, s SMALLINT, l BIGINT, r REAL, d DOUBLE PRECISION,"
        " n NUMERIC(12,2), t TEXT, y BYTEA, da DATE, ti TIME, ts TIMESTAMP, tz TIMESTAMPTZ, i INTERVAL, u UUID)"
    )
    row = (
        1, True, -7, 2**40, 0.5, 1e300, decimal.Decimal("12.34"), "ünï", b"\x00\xff", dt.date(2024, 2, 29),
        dt.time(1, 2, 3), dt.datetime(2000, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
        dt.timedelta(days=3, seconds=5), uuid.UUID(int=77),
    )  # fmt: skip
    marks = ", ".join(f"${i + 1}" for i in range(len(row)))
    insert = await c.prepare(f"INSERT INTO types VALUES ({marks})")
    assert [p.name for p in insert.get_parameters()][:4] == ["int4", "bool", "int2", "int8"]
    await insert.fetch(*row)
    await insert.fetch(2, *[None] * (len(row) - 1))
    for _ in range(3):
        assert tuple(await c.fetchrow("SELECT * FROM types WHERE id = $1", 1)) == row
    assert tuple(await c.fetchrow("SELECT * FROM types WHERE id = $1", 2))[1:] == (None,) * (len(row) - 1)
    assert await c.fetchval("SELECT count(*) FROM types WHERE l > $1 OR t IS NULL", 5) == 2
    select = await c.prepare("SELECT id, t, n FROM types ORDER BY id")
    assert [a.name for a in select.get_attributes()] == ["id", "t", "n"]
    assert [a.type.name for a in select.get_attributes()] == ["int4", "text", "numeric"]
    assert await c.fetchval("SELECT $1::int + 1", 41) == 42
    assert await c.fetchval("SELECT count(*) FROM types WHERE id = ANY($1::int[])", [1, 2, 3]) == 2
    assert await c.fetchval("SELECT count(*) FROM types WHERE t = ANY($1::text[])", ["ünï", "x,y", 'q"']) == 1


async def parameters(c):
    """Parameters whose types nobody has named: they follow from what is around them."""
    await c.execute("CREATE TABLE given (id INTEGER PRIMARY KEY, t TEXT, n NUMERIC(10,2), d DATE, u UUID)")
    texts, ids = ["a", "b,c", None, "d"], [1, 2, 3, 4]
    insert = "INSERT INTO given (id, t) SELECT * FROM unnest($1::int[], $2::text[])"
    assert await c.execute(insert, ids, texts) == "INSERT 0 4"
    await c.execute("UPDATE given SET n = id + 0.25, d = DATE '2020-01-01' + id, u = $1", uuid.UUID(int=9))

    async def found(condition, *values):
        return [record["id"] for record in await c.fetch(f"SELECT id FROM given WHERE {condition} ORDER BY id", *values)]

    for _ in range(2):
        assert await found("id = ANY($1)", [2, 4, 9, None]) == [2, 4]
        assert await found("id = ANY($1)", []) == []
        assert await found("id <> ALL($1)", [2, 4]) == [1, 3]
        assert await found("id > ALL($1)", [2, 1]) == [3, 4]
        assert await found("t = ANY($1) AND id < $2", ["b,c", "d"], 3) == [2]
        assert await found("n = ANY($1)", [decimal.Decimal("1.25"), decimal.Decimal("2")]) == [1]
        assert await found("d = ANY($1)", [dt.date(2020, 1, 4)]) == [3]
        assert await found("u = ANY($1)", [uuid.UUID(int=9)]) == ids
        page = await c.fetch("SELECT id FROM given WHERE id > $1 ORDER BY id LIMIT $2 OFFSET $3", 0, 2, 1)
        assert [record["id"] for record in page] == [2, 3]
    assert await c.fetchval("SELECT DATE '2020-01-31' + $1::interval", dt.timedelta(hours=36)) == dt.datetime(2020, 2, 1, 12)
    assert await c.fetchval("SELECT $1::time", dt.time(1, 2, 3, 4)) == dt.time(1, 2, 3, 4)
    assert await c.fetchval("UPDATE given SET t = 'x' WHERE id = ANY($1) RETURNING id", [3]) == 3
    assert await c.execute("DELETE FROM given WHERE id = ANY($1)", [1, 2]) == "DELETE 2"
    rows = await c.fetch("SELECT * FROM unnest($1::int[], $2::text[]) WITH ORDINALITY AS x(a, b, n)", [7], ["p", "q"])
    assert [tuple(row) for row in rows] == [(7, "p", 1), (None, "q", 2)], rows


async def documents(c):
    """JSON, as texts and by a codec."""
    await c.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY, doc JSONB)")
    await c.execute("INSERT INTO documents VALUES ($1, $2)", 1, '{"b":1,"a":[null]}')
    assert await c.fetchval("SELECT doc FROM documents WHERE id = $1", 1) == '{"a": [null], "b": 1}'
    decode = lambda data: json.loads(data[1:])
    await c.set_type_codec("jsonb", schema="pg_catalog", format="binary", encoder=lambda v: b"\x01" + json.dumps(v).encode(), decoder=decode)
    await c.execute("INSERT INTO documents VALUES ($1, $2)", 2, {"c": [1, "x"]})
    assert await c.fetchval("SELECT doc FROM documents WHERE id = $1", 2) == {"c": [1, "x"]}
    assert await c.fetchval("SELECT $1::jsonb -> 'k'", {"k": {"deep": True}}) == {"deep": True}
    assert await c.fetchval("SELECT id FROM documents WHERE doc @> $1", {"c": ["x"]}) == 2
    assert await c.fetchval("SELECT jsonb_object_agg(id, doc) FROM documents WHERE id = 2") == {"2": {"c": [1, "x"]}}
    await c.copy_records_to_table("documents", records=[(3, {"copied": 1})])
    assert await c.fetchval("SELECT doc ->> 'copied' FROM documents WHERE id = 3") == "1"
    await c.reset_type_codec("jsonb", schema="pg_catalog")


async def introspection(c):
    """Types that the client asks the catalog for: arrays."""
    assert await c.fetchval("SELECT ARRAY[1, 2, NULL]") == [1, 2, None]
    assert await c.fetchval("SELECT ARRAY['a', 'b,c', '']") == ["a", "b,c", ""]
    assert await c.fetchval("SELECT array_agg(id ORDER BY id) FROM types") == [1, 2]
    assert await c.fetchval("SELECT array_agg(n) FROM types WHERE id = 1") == [decimal.Decimal("12.34")]
    assert await c.fetchval("SELECT $1::bigint[]", [1, 2**40]) == [1, 2**40]
    schemas = await c.fetchval("SELECT current_schemas(true)")
    assert "public" in schemas and "pg_catalog" in schemas, schemas
    await c.reload_schema_state()
    assert await c.fetchval("SELECT typname FROM pg_type WHERE oid = $1", 1007) == "_int4"
    assert await c.fetchval("SELECT 'types'::regclass::oid") == await c.fetchval(
        "SELECT oid FROM pg_class WHERE relname = $1", "types"
    )


async def transactions(c):
    """Blocks, savepoints, errors, cursors, bulk work."""
    async with c.transaction():
        await c.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER CHECK (balance >= 0))")
        await c.executemany("INSERT INTO account VALUES ($1, $2)", [(i, i * 10) for i in range(100)])
    await raises(asyncpg.UniqueViolationError, c.execute("INSERT INTO account VALUES (1, 1)"))
    await raises(asyncpg.UndefinedTableError, c.fetch("SELECT * FROM nowhere"))
    transaction = c.transaction(isolation="serializable")
    await transaction.start()
    await c.execute("UPDATE account SET balance = 0")
    try:
        async with c.transaction():
            await c.execute("UPDATE account SET balance = -1 WHERE id = 3")
    except asyncpg.CheckViolationError:
        pass
    assert await c.fetchval("SELECT sum(balance) FROM account") == 0
    await transaction.rollback()
    assert await c.fetchval("SELECT sum(balance) FROM account") == 49_500
    async with c.transaction():
        seen = [record["id"] async for record in c.cursor("SELECT id FROM account ORDER BY id", prefetch=7)]
        assert seen == list(range(100))
        cursor = await c.cursor("SELECT id FROM account ORDER BY id")
        assert [record["id"] for record in await cursor.fetch(3)] == [0, 1, 2]
        assert (await cursor.fetchrow())["id"] == 3


async def copies(c):
    """COPY in binary form, of records and of results."""
    await c.execute("CREATE TABLE copied (id INTEGER, t TEXT, d DATE)")
    records = [(i, f"text {i}", dt.date(2020, 1, 1) + dt.timedelta(days=i)) for i in range(2000)]
    assert await c.copy_records_to_table("copied", records=records) == "COPY 2000"
    assert [tuple(r) for r in await c.fetch("SELECT * FROM copied ORDER BY id")] == records
    out = bytearray()

    async def take(data):
        out.extend(data)

    assert await c.copy_from_query("SELECT id FROM copied WHERE id < $1", 3, output=take, format="csv") == "COPY 3"
    assert bytes(out).split() == [b"0", b"1", b"2"], out


async def cancellation(c):
    """A query that is given up."""
    slow = "SELECT count(*) FROM copied a, copied b, copied c WHERE a.t || b.t || c.t LIKE '%nothing%'"
    await raises(asyncio.TimeoutError, c.fetch(slow, timeout=0.3))
    assert await c.fetchval("SELECT 1") == 1
    task = asyncio.create_task(c.fetch(slow))
    await asyncio.sleep(0.2)
    task.cancel()
    await raises(asyncio.CancelledError, task)
    assert await c.fetchval("SELECT 2") == 2


async def channels(c):
    """Listeners, while the connection does nothing else and while it runs a query."""
    heard = asyncio.Queue()
    await c.add_listener("news", lambda _, pid, channel, payload: heard.put_nowait((pid, channel, payload)))
    other = await connect()
    await other.execute("NOTIFY news, 'first'")
    assert await heard.get() == (other.get_server_pid(), "news", "first")
    slow = asyncio.create_task(c.fetchval("SELECT CASE WHEN pg_sleep(0.3) IS NULL THEN 0 ELSE 3 END"))
    await other.fetch("SELECT pg_notify('news', i::text) FROM generate_series(1, 3) AS g(i)")
    assert await slow == 3
    assert [(await heard.get())[2] for _ in range(3)] == ["1", "2", "3"]
    await c.reset()
    await other.execute("NOTIFY news, 'late'")
    await other.close()
    assert await c.fetchval("SELECT 4") == 4 and heard.empty()


async def pool():
    """Several connections, which are reset when they are given back."""
    async with asyncpg.create_pool(host="127.0.0.1", port=PORT, user="ada", database="db", min_size=1, max_size=3) as p:
        async def work(i):
            async with p.acquire() as c:
                await c.execute("SET application_name = 'pooled'")
                return await c.fetchval("SELECT balance FROM account WHERE id = $1", i)

        assert await asyncio.gather(*[work(i) for i in range(20)]) == [i * 10 for i in range(20)]


async def main():
    c = await connect()
    for check in [statements, parameters, documents, introspection, transactions, copies, cancellation, channels]:
        await asyncio.wait_for(check(c), 60)
        print(check.__name__, "ok")
    await c.close()
    await asyncio.wait_for(pool(), 60)
    print("pool ok")
    print("done")


asyncio.run(main())
