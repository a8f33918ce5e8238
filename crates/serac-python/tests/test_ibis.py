"""The backend of Ibis."""

import datetime
import decimal
import gc
import uuid

import pytest

ibis = pytest.importorskip("ibis")
pandas = pytest.importorskip("pandas")

import ibis.expr.datatypes as dt  # noqa: E402
import polars  # noqa: E402
import pyarrow  # noqa: E402
import seracdb  # noqa: E402
from ibis import _  # noqa: E402


def made(client):
    """The names of tables and views, without those of frames in memory."""
    return sorted(name for name in client.list_tables() if not name.startswith("ibis_"))


@pytest.fixture
def client():
    client = ibis.seracdb.connect()
    yield client
    client.disconnect()


@pytest.fixture
def sales(client):
    frame = pyarrow.table(
        {
            "id": range(100),
            "place": [["here", "there", None][i % 3] for i in range(100)],
            "price": pyarrow.array([decimal.Decimal(i) / 4 for i in range(100)], pyarrow.decimal128(10, 2)),
            "day": [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(100)],
        }
    )
    return client.create_table("sales", frame)


def test_expressions(client, sales):
    grouped = sales.group_by("place").agg(n=_.count(), total=_.price.sum(), last=_.day.max()).order_by("place")
    assert grouped.to_pyarrow().to_pylist() == [
        {"place": "here", "n": 34, "total": decimal.Decimal("420.75"), "last": datetime.date(2024, 4, 9)},
        {"place": "there", "n": 33, "total": decimal.Decimal("404.25"), "last": datetime.date(2024, 4, 7)},
        {"place": None, "n": 33, "total": decimal.Decimal("412.50"), "last": datetime.date(2024, 4, 8)},
    ]
    best = sales.mutate(rank=ibis.row_number().over(group_by="place", order_by=_.price.desc())).filter(_.rank == 0)
    assert sorted(best.id.to_list()) == [97, 98, 99]
    monthly = sales.group_by(month=_.day.truncate("M")).agg(n=_.count()).order_by("month")
    assert monthly.n.to_list() == [31, 29, 31, 9]
    assert sales.filter(_.place.like("%her%")).count().execute() == 67
    assert sales.id.median().execute() == 49.5
    assert sales.id.quantile([0.25, 0.75]).execute() == pytest.approx([24.75, 74.25])
    firsts = sales.agg(first=_.place.first(order_by=_.id), last=_.place.last(order_by=_.id, include_null=True))
    assert firsts.to_pyarrow().to_pylist() == [{"first": "here", "last": "here"}]
    assert isinstance(sales.execute(), pandas.DataFrame)
    assert isinstance(sales.to_polars(), polars.DataFrame)
    assert "GROUP BY" in ibis.to_sql(grouped) and "GROUP BY" in ibis.to_sql(grouped, dialect="seracdb")


def test_maps_are_objects_of_json(client, sales):
    one = sales.filter(_.id == 1)
    pair = one.select(pair=ibis.map(ibis.array([_.place]), ibis.array([_.id])))
    assert pair.to_pyarrow().to_pylist() == [{"pair": [("there", 1)]}]
    assert pair.pair.keys().to_list() == [["there"]] and pair.pair.values().to_list() == [[1]]
    texts = ibis.map({"a": "x", "b": "y"})
    assert sorted(client.execute(texts.values())) == ["x", "y"] and client.execute(texts["b"]) == "y"


def test_results_come_in_batches(client):
    numbers = client.sql("SELECT i, i % 7 AS k FROM generate_series(1, 100000) AS g (i)")
    batches = numbers.to_pyarrow_batches(chunk_size=1000)
    first = next(batches)
    assert first.num_rows <= 1000 and first.schema == numbers.schema().to_pyarrow()
    # A statement in between does not lose the rows that are left.
    assert client.sql("SELECT 1 AS one").one.to_list() == [1]
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 100_000


def test_tables(client, sales):
    assert made(client) == ["sales"] and client.current_database == "public"
    new = client.create_table("made", schema={"a": "int64", "b": "!string"})
    assert new.schema() == ibis.schema({"a": "int64", "b": "!string"})
    with pytest.raises(seracdb.ProgrammingError, match="exists"):
        client.create_table("made", schema={"a": "int64"})
    client.insert("made", pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}))
    client.insert("made", new.mutate(a=_.a + 10))
    assert sorted(new.a.to_list()) == [1, 2, 11, 12]
    client.insert("made", [{"a": 7, "b": "z"}], overwrite=True)
    assert new.to_pyarrow().to_pylist() == [{"a": 7, "b": "z"}]
    client.upsert("made", pandas.DataFrame({"a": [7, 8], "b": ["new", "more"]}), on="a")
    assert new.order_by("a").b.to_list() == ["new", "more"]
    # A table may be made anew from itself.
    again = client.create_table("made", new.filter(_.a > 7), overwrite=True)
    assert again.a.to_list() == [8]
    client.rename_table("made", "renamed")
    client.truncate_table("renamed")
    assert client.table("renamed").count().execute() == 0
    client.drop_table("renamed")
    client.drop_table("renamed", force=True)
    with pytest.raises(ibis.common.exceptions.TableNotFound):
        client.table("renamed")
    cheap = client.create_view("cheap", sales.filter(_.price < 1))
    assert cheap.count().execute() == 4 and made(client) == ["cheap", "sales"]
    client.drop_view("cheap")


def test_databases_are_schemas(client):
    client.create_database("more")
    client.create_database("more", force=True)
    table = client.create_table("t", pyarrow.table({"a": [1]}), database="more")
    assert table.a.to_list() == [1]
    assert client.list_tables(database="more") == ["t"] and made(client) == []
    assert "more" in client.list_databases()
    assert client.table("t", database=(client.current_catalog, "more")).a.to_list() == [1]
    with pytest.raises(ibis.common.exceptions.UnsupportedOperationError):
        client.table("t", database=("other", "more"))
    client.drop_database("more", cascade=True)
    assert "more" not in client.list_databases()


def test_temporary_tables(client):
    client.create_table("t", pyarrow.table({"a": [1]}))
    temporary = client.create_table("t", pyarrow.table({"a": ["x"]}), temp=True)
    assert temporary.a.to_list() == ["x"] and client.table("t").a.type().is_string()
    client.create_table("t", temporary.mutate(b=1), temp=True, overwrite=True)
    assert client.table("t").columns == ("a", "b")
    client.raw_sql("DROP TABLE t").close()
    assert client.table("t").a.to_list() == [1]


def test_frames_in_memory(client, sales):
    for frame in (
        pandas.DataFrame({"id": [1, 2], "weight": [0.5, 1.5]}),
        polars.DataFrame({"id": [1, 2], "weight": [0.5, 1.5]}),
        pyarrow.table({"id": [1, 2], "weight": [0.5, 1.5]}),
    ):
        weights = ibis.memtable(frame)
        joined = sales.join(weights, "id").order_by("id")
        assert client.execute(joined.select(x=_.price.cast("float64") * _.weight)).x.tolist() == pytest.approx([0.125, 0.75])
    # The tables of frames that are gone go before the next expression runs.
    name = weights.op().name
    assert name in client.list_tables()
    del weights, joined, frame
    gc.collect()
    assert sales.count().execute() == 100
    assert name not in client.list_tables()


def test_types(client):
    values = {
        "flag": ("boolean", True),
        "small": ("int16", -7),
        "big": ("int64", 2**62),
        "ratio": ("float64", 0.1),
        "number": ("decimal(20, 5)", decimal.Decimal("3.12500")),
        "text": ("string", "größer"),
        "raw": ("binary", b"\x00\xff"),
        "day": ("date", datetime.date(2024, 2, 29)),
        "clock": ("time", datetime.time(1, 2, 3, 4)),
        "moment": ("timestamp(6)", datetime.datetime(2024, 2, 29, 1, 2, 3, 4)),
        "instant": ("timestamp('UTC', 6)", datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc)),
        "code": ("uuid", uuid.UUID(int=5)),
        "document": ("json", {"a": [1, None, "x"]}),
    }
    schema = ibis.schema({name: type_ for name, (type_, _value) in values.items()})
    table = client.create_table("every", schema=schema)
    assert {name: type_ for name, type_ in table.schema().items() if name != "document"} == {
        name: type_ for name, type_ in schema.items() if name != "document"
    }
    places = ", ".join(f"${at + 1}" for at in range(len(values)))
    row = [seracdb.Json(value) if name == "document" else value for name, (_type, value) in values.items()]
    client.con.execute(f"INSERT INTO every VALUES ({places})", row)
    client.con.execute("INSERT INTO every (small) VALUES (1)")
    arrow = table.filter(_.flag).to_pyarrow()
    assert arrow.schema == table.schema().to_pyarrow()
    frame = client.execute(table.filter(_.flag))
    for name, (_type, value) in values.items():
        found = frame[name][0]
        # pandas has timestamps for dates.
        assert found == (pandas.Timestamp(value) if name == "day" else value), name
    empty = table.filter(_.flag.isnull()).drop("small").to_pyarrow().to_pylist()
    assert empty == [dict.fromkeys(name for name in values if name != "small")]
    spans = client.sql("SELECT INTERVAL '1 day 2 seconds' AS span")
    assert spans.span.type() == dt.Interval("s") and spans.to_pyarrow()["span"][0].as_py().total_seconds() == 86402
    with pytest.raises(seracdb.DataError, match="months"):
        client.sql("SELECT INTERVAL '1 month' AS span").to_pyarrow()


def test_connections(tmp_path):
    folder = tmp_path / "shop.db"
    client = ibis.connect(f"seracdb:///{folder}?durability=relaxed&threads=1")
    client.create_table("t", pyarrow.table({"a": [1, 2]}))
    client.disconnect()
    reader = ibis.seracdb.connect(folder, read_only=True)
    assert reader.table("t").a.sum().execute() == 3
    with pytest.raises(seracdb.InternalError, match="read-only"):
        reader.insert("t", [{"a": 3}])
    reader.disconnect()
    with seracdb.connect(folder) as con:
        con.execute("INSERT INTO t VALUES (3)")
        # The client is part of the connection's transaction.
        assert ibis.seracdb.from_connection(con).table("t").a.sum().execute() == 6
        con.rollback()
        assert ibis.seracdb.from_connection(con).table("t").a.sum().execute() == 3
    for wrong in ("seracdb://host/db", "seracdb:///db?speed=1", "seracdb:///db?read_only=maybe"):
        with pytest.raises(ibis.common.exceptions.IbisInputError):
            ibis.connect(wrong)
