"""The package as a driver of ADBC."""

import adbc_driver_manager
import pyarrow
import pytest
import seracdb
import seracdb.adbc


def test_the_driver_and_the_package_share_a_folder(tmp_path):
    path = tmp_path / "shop"
    with seracdb.connect(path, durability="off", autocommit=True) as con:
        con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
        with seracdb.adbc.connect(path, durability="off") as other, other.cursor() as cursor:
            assert cursor.adbc_ingest("t", pyarrow.table({"id": [1, 2], "name": ["a", "b"]}), mode="append") == 2
            assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
            other.commit()
            assert con.execute("SELECT name FROM t ORDER BY id").fetchall() == [("a",), ("b",)]
            con.execute("UPDATE t SET name = 'c' WHERE id = 2")
            cursor.execute("SELECT name FROM t ORDER BY id")
            assert cursor.fetch_arrow_table().column("name").to_pylist() == ["a", "c"]
            with pytest.raises(adbc_driver_manager.Error, match="other options"):
                seracdb.adbc.connect(path, durability="full")
        # The last of both closes the database.
        with seracdb.adbc.connect(path) as other:
            con.close()
            with other.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM t")
                assert cursor.fetchone() == (2,)
    with seracdb.connect(path, durability="full") as con:
        assert con.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_databases_in_memory():
    with seracdb.adbc.connect(threads=1, autocommit=True) as con, con.cursor() as cursor:
        cursor.execute("SELECT :a::int + 1", [1])
        assert cursor.fetchone() == (2,)
