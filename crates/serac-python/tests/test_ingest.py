"""Files into tables."""

import os

import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import seracdb

SOURCE = pyarrow.table({"id": list(range(1000)), "name": [f"n{i}" for i in range(1000)]})


@pytest.fixture
def files(tmp_path):
    pyarrow.csv.write_csv(SOURCE, tmp_path / "rows.csv")
    pyarrow.parquet.write_table(SOURCE, tmp_path / "rows.parquet")
    pyarrow.feather.write_feather(SOURCE, tmp_path / "rows.arrow", compression="uncompressed")
    lines = [f'{{"id": {i}, "name": "n{i}"}}\n' for i in range(1000)]
    (tmp_path / "rows.json").write_text("".join(lines))
    return tmp_path


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "json"])
def test_files_make_their_table(con, files, ending):
    assert con.ingest(files / f"rows.{ending}") == 1000
    assert con.execute("SELECT count(*), sum(id), min(name) FROM rows").fetchone() == (1000, 499500, "n0")
    columns = [column[0] for column in con.execute("SELECT * FROM rows LIMIT 0").description]
    assert columns == ["id", "name"]
    # Again: its rows are added.
    assert con.ingest(str(files / f"rows.{ending}")) == 1000
    assert con.execute("SELECT count(*) FROM rows").fetchone() == (2000,)


def test_patterns_and_lists(con, files):
    for number in range(3):
        pyarrow.parquet.write_table(SOURCE.slice(number * 10, 10), files / f"part{number}.parquet")
    with pytest.raises(ValueError, match="name the table"):
        con.ingest(files / "part*.parquet")
    assert con.ingest(files / "part*.parquet", "parts") == 30
    assert con.ingest([files / "part0.parquet", files / "part2.parquet"], "parts") == 20
    assert con.execute("SELECT count(*), count(DISTINCT id) FROM parts").fetchone() == (50, 30)


def test_into_a_table_that_is_there(con, files):
    con.execute("CREATE TABLE rows (name VARCHAR(10), id INTEGER PRIMARY KEY, more TEXT DEFAULT 'x')")
    con.ingest(files / "rows.csv")
    assert con.execute("SELECT * FROM rows WHERE id = 7").fetchone() == ("n7", 7, "x")
    # All or nothing.
    with pytest.raises(seracdb.UniqueViolation):
        con.ingest(files / "rows.csv")
    assert con.execute("SELECT count(*) FROM rows").fetchone() == (1000,)
    with pytest.raises(seracdb.ProgrammingError, match="already exists"):
        con.ingest(files / "rows.csv", if_exists="fail")
    assert con.ingest(files / "rows.csv", if_exists="replace") == 1000
    assert [column[0] for column in con.execute("SELECT * FROM rows").description] == ["id", "name"]
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        con.ingest(files / "rows.csv", "missing", create=False)


def test_in_a_transaction(files):
    with seracdb.connect() as con:
        con.ingest(files / "rows.csv")
        assert con.transaction_status == "open"
        con.rollback()
        with pytest.raises(seracdb.ProgrammingError):
            con.execute("SELECT * FROM rows")
        con.rollback()
        with con.transaction():
            con.ingest(files / "rows.csv", "a")
            con.ingest(files / "rows.parquet", "b")
        assert con.execute("SELECT count(*) FROM a JOIN b USING (id, name)").fetchone() == (1000,)


def test_options_of_the_functions_that_read(con, files):
    (files / "odd.txt").write_text("1;x\n2;y\n")
    assert con.ingest(files / "odd.txt", format="csv", delim=";", header=False, columns=["a", "b"]) == 2
    assert con.execute("SELECT * FROM odd ORDER BY a").fetchall() == [(1, "x"), (2, "y")]
    (files / "typed.csv").write_text("a\n1\n")
    con.ingest(files / "typed.csv", types=["numeric(10, 2)"])
    assert str(con.execute("SELECT a FROM typed").fetchone()[0]) == "1.00"
    with pytest.raises(seracdb.ProgrammingError, match="has no argument"):
        con.ingest(files / "rows.csv", colour="red")
    with pytest.raises(ValueError, match="format is one of"):
        con.ingest(files / "rows.csv", format="xml")
    with pytest.raises(seracdb.DatabaseError):
        con.ingest(files / "odd.txt")


def test_wrong_files(con, files):
    with pytest.raises(seracdb.DatabaseError) as error:
        con.ingest(files / "missing.csv")
    assert error.value.sqlstate == "58P01"
    (files / "damaged.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(seracdb.DatabaseError):
        con.ingest(files / "damaged.parquet")
    # A value in the middle that does not fit: nothing is there, the table included.
    lines = ["a"] + [str(i) for i in range(50_000)] + ["word"] + [str(i) for i in range(10)]
    (files / "mixed.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(seracdb.DataError):
        con.ingest(files / "mixed.csv", sample_size=100)
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        con.execute("SELECT * FROM mixed")
    with pytest.raises(seracdb.DataError, match="empty"):
        con.ingest([], "t")


def test_numbers_with_their_own_digits(con, files):
    (files / "digits.csv").write_text("n\n1.5\n123456789012345678901234567890.25\n")
    con.ingest(files / "digits.csv", types=["numeric"])
    total = con.execute("SELECT sum(n)::text FROM digits").fetchone()
    assert total == ("123456789012345678901234567891.75",)


def test_progress(con, files, capsys):
    seen: list[int] = []
    con.ingest(files / "rows.csv", "a", progress=seen.append)
    assert seen[-1] == 1000 and seen == sorted(seen)
    con.ingest(files / "rows.csv", "b", progress=True)
    assert "1,000 rows" in capsys.readouterr().err

    def fails(rows):
        raise ValueError("enough")

    with pytest.raises(seracdb.DatabaseError, match="enough"):
        con.ingest(files / "rows.csv", "c", progress=fails)
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        con.execute("SELECT * FROM c")


def test_the_name_of_the_table(con, files):
    os.rename(files / "rows.csv", files / "Odd name.v2.csv")
    con.ingest(files / "Odd name.v2.csv")
    assert con.execute('SELECT count(*) FROM "Odd name"').fetchone() == (1000,)
    con.execute("CREATE SCHEMA other")
    con.ingest(files / "rows.json", "t", schema="other")
    assert con.execute("SELECT count(*) FROM other.t").fetchone() == (1000,)
