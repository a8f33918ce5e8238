"""What pandas and Polars have for databases: read_sql, to_sql, read_database, write_database."""

import datetime
import decimal

import pytest

pytest.importorskip("sqlalchemy")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

import sqlalchemy as sa  # noqa: E402
from polars.testing import assert_frame_equal  # noqa: E402

ROWS = 1000


@pytest.fixture
def engine():
    engine = sa.create_engine("seracdb://")
    yield engine
    engine.dispose()


@pytest.fixture
def frame():
    """A frame of pandas."""
    frame = pandas.DataFrame(
        {
            "n": range(ROWS),
            "x": [i / 8 for i in range(ROWS)],
            "t": [f"t{i}" if i % 7 else None for i in range(ROWS)],
            "d": pandas.date_range("2024-01-01", periods=ROWS),
            "b": [i % 2 == 0 for i in range(ROWS)],
        }
    )
    return frame.astype({"t": "str"})


@pytest.mark.parametrize("method", [None, "multi"])
def test_pandas(engine, frame, method):
    frame.to_sql("frame", engine, index=False, chunksize=100, method=method)
    read = pandas.read_sql("SELECT * FROM frame ORDER BY n", engine)
    pandas.testing.assert_frame_equal(read, frame, check_dtype=False)
    assert read.dtypes["n"] == "int64" and read.dtypes["x"] == "float64" and read.dtypes["b"] == "bool"
    assert pandas.read_sql_table("frame", engine, columns=["n"])["n"].sum() == ROWS * (ROWS - 1) // 2
    few = pandas.read_sql(sa.text("SELECT n FROM frame WHERE x < :most"), engine, params={"most": 1})
    assert sorted(few["n"]) == list(range(8))
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("frame", engine, index=False)
    frame.to_sql("frame", engine, index=False, if_exists="append")
    frame.head(3).to_sql("frame", engine, if_exists="replace", index_label="place")
    assert pandas.read_sql("frame", engine, index_col="place")["n"].tolist() == [0, 1, 2]
    parts = pandas.read_sql("SELECT generate_series(1, 250) AS i", engine, chunksize=100)
    assert [len(part) for part in parts] == [100, 100, 50]


def test_pandas_in_a_transaction(engine, frame):
    with engine.connect() as connection, connection.begin() as transaction:
        frame.to_sql("frame", connection, index=False)
        assert pandas.read_sql("SELECT count(*) AS c FROM frame", connection)["c"][0] == ROWS
        transaction.rollback()
    assert not sa.inspect(engine).has_table("frame")


def polars_frame():
    return polars.DataFrame(
        {
            "n": range(ROWS),
            "x": [i / 8 for i in range(ROWS)],
            "t": [f"t{i}" if i % 7 else None for i in range(ROWS)],
            "d": [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(ROWS)],
        }
    )


def test_polars(engine):
    frame = polars_frame()
    assert frame.write_database("frame", engine) == ROWS
    assert frame.write_database("frame", engine, if_table_exists="append") == ROWS
    read = polars.read_database("SELECT DISTINCT * FROM frame ORDER BY n", engine)
    assert_frame_equal(read, frame)
    frame.head(3).write_database("frame", engine, if_table_exists="replace")
    options = {"parameters": {"n": 1}}
    with engine.connect() as connection:
        few = polars.read_database(sa.text("SELECT t FROM frame WHERE n = :n"), connection, execute_options=options)
    assert few["t"].to_list() == ["t1"]


def test_polars_of_the_package_itself(con):
    """Polars takes a connection of DB-API, too, and a cursor as Arrow."""
    con.append("frame", polars_frame(), create=True)
    read = polars.read_database("SELECT * FROM frame ORDER BY n", con)
    assert_frame_equal(read, polars_frame(), check_dtypes=False)
    batches = polars.read_database("SELECT n FROM frame", con, iter_batches=True, batch_size=300)
    assert sum(len(batch) for batch in batches) == ROWS
    con.execute("CREATE TABLE price (p NUMERIC(10, 2)); INSERT INTO price VALUES (1.50)")
    assert polars.DataFrame(con.execute("SELECT p FROM price"))["p"].to_list() == [decimal.Decimal("1.50")]


def test_pandas_of_the_package_itself(con):
    con.execute("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2)")
    with pytest.warns(UserWarning, match="pandas only supports SQLAlchemy"):
        assert pandas.read_sql("SELECT a FROM t ORDER BY a", con)["a"].tolist() == [1, 2]
