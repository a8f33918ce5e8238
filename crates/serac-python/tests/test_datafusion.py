"""Tables in datafusion-python, by DataFusion's interface between libraries."""

import datetime
import decimal

import datafusion
import pyarrow
import pytest
import seracdb


@pytest.fixture
def ctx():
    return datafusion.SessionContext()


@pytest.fixture
def item(con, ctx):
    """A table of 20,000 rows, half of them frozen, registered as ``item``."""
    con.execute(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(10, 2), half DOUBLE PRECISION, "
        "day DATE, big NUMERIC, doc JSONB)"
    )
    insert = (
        "INSERT INTO item SELECT i, 'n' || i % 100, i / 100.0, i / 2.0, DATE '2024-01-01' + i % 365, i * 1e20, "
        "('{\"i\":' || i || '}')::JSONB FROM generate_series({}, {}) AS g (i)"
    )
    con.execute(insert.replace("{}, {}", "0, 9999"))
    con.execute("FREEZE TABLE item")
    con.execute(insert.replace("{}, {}", "10000, 19999"))
    ctx.register_table("item", con.table("item"))
    return con


def rows(ctx, query):
    return [row for batch in ctx.sql(query).collect() for row in batch.to_pylist()]


def plan(ctx, query):
    return ctx.sql(query).execution_plan().display_indent()


def test_rows_and_types(ctx, item):
    (row,) = rows(ctx, "SELECT * FROM item WHERE id = 7")
    assert row == {
        "id": 7,
        "name": "n7",
        "price": decimal.Decimal("0.07"),
        "half": 3.5,
        "day": datetime.date(2024, 1, 8),
        # A number with digits of its own is a text.
        "big": "7" + "0" * 20,
        "doc": '{"i": 7}',
    }
    assert rows(ctx, "SELECT count(*) AS n FROM item") == [{"n": 20_000}]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id < 10", 10),
        ("10 > id", 10),
        ("id >= 5 AND id <> 7 AND id <= 9", 4),
        ("name = 'n5'", 200),
        ("name > 'n98'", 400 - 200),
        ("price = 1.50", 1),
        ("price BETWEEN 1 AND 2", 101),
        ("half > 9999.0", 1),
        ("day = DATE '2024-01-02'", 55),
        ("id % 2 = 0", 10_000),
        ("name LIKE 'n1%' AND id < 100", 11),
        ("big = '700000000000000000000'", 1),
        ("id IN (1, 2, 50000)", 2),
        ("id = NULL", 0),
        ("NOT (id > 3)", 4),
        ("id < 2 OR id > 19998", 3),
    ],
)
def test_filters_find_what_sql_finds(ctx, item, condition, expected):
    assert rows(ctx, f"SELECT count(*) AS n FROM item WHERE {condition}") == [{"n": expected}]
    if "big" not in condition:
        assert item.execute(f"SELECT count(*) FROM item WHERE {condition}").fetchone() == (expected,)


def test_conditions_and_columns_are_pushed_down(ctx, item):
    query = plan(ctx, "SELECT name FROM item WHERE id < 10 AND name = 'n5'")
    assert "FilterExec" not in query, query
    # Other conditions stay with the consumer.
    assert "FilterExec" in plan(ctx, "SELECT name FROM item WHERE id % 7 = 1")
    scan = item.table("item").__datafusion_table_provider__
    assert scan(ctx) is not None


def test_joins_and_aggregates(ctx, item):
    frame = ctx.sql(
        "SELECT a.name, sum(a.price) AS price, count(*) AS n FROM item a JOIN item b ON a.id = b.id "
        "WHERE b.id < 1000 GROUP BY a.name ORDER BY a.name LIMIT 2"
    )
    table = pyarrow.Table.from_batches(frame.collect())
    own = item.execute(
        "SELECT name, sum(price), count(*) FROM item WHERE id < 1000 GROUP BY name ORDER BY name LIMIT 2"
    ).fetchall()
    assert [tuple(row.values()) for row in table.to_pylist()] == own


def test_each_scan_reads_one_moment(ctx, item):
    frame = ctx.sql("SELECT count(*) AS n FROM item")
    item.execute("DELETE FROM item WHERE id >= 100")
    # A scan begins when the frame is collected.
    assert frame.collect()[0].to_pylist() == [{"n": 100}]
    stream = ctx.sql("SELECT id FROM item").execute_stream()
    item.execute("DELETE FROM item")
    assert sum(batch.to_pyarrow().num_rows for batch in stream) == 100
    assert rows(ctx, "SELECT count(*) AS n FROM item") == [{"n": 0}]


def test_scans_are_part_of_the_transaction(ctx):
    with seracdb.connect() as con:
        con.execute("CREATE TABLE t (a INT)")
        con.commit()
        ctx.register_table("t", con.table("t"))
        con.execute("INSERT INTO t VALUES (1)")
        assert rows(ctx, "SELECT count(*) AS n FROM t") == [{"n": 1}]
        con.rollback()
        assert rows(ctx, "SELECT count(*) AS n FROM t") == [{"n": 0}]


def test_tables_that_change_or_go_are_errors(ctx, con):
    con.execute("CREATE TABLE t (a INT)")
    ctx.register_table("t", con.table("t"))
    con.execute("ALTER TABLE t ADD COLUMN b INT")
    assert rows(ctx, "SELECT a FROM t") == []
    con.execute("DROP TABLE t; CREATE TABLE t (a TEXT)")
    with pytest.raises(Exception, match="register it again"):
        rows(ctx, "SELECT a FROM t")
    con.execute("DROP TABLE t")
    with pytest.raises(Exception, match="does not exist"):
        rows(ctx, "SELECT a FROM t")
    with pytest.raises(seracdb.ProgrammingError):
        ctx.register_table("nothing", con.table("nothing"))


def test_a_closed_connection_is_an_error(ctx):
    con = seracdb.connect(autocommit=True)
    con.execute("CREATE TABLE t (a INT)")
    ctx.register_table("t", con.table("t"))
    con.close()
    with pytest.raises(Exception, match="closed"):
        rows(ctx, "SELECT * FROM t")
