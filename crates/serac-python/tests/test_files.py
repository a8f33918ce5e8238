"""Files by name in FROM, of the process that Python runs in."""

import pyarrow
import pyarrow.parquet


def test_relative_names_and_absolute_ones(con, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absolute = tmp_path / "part.parquet"
    # The same name, but for the first slash.
    relative = absolute.relative_to("/")
    (tmp_path / relative).parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), absolute)
    pyarrow.parquet.write_table(pyarrow.table({"n": [2]}), relative)
    rows = con.execute(f"SELECT n FROM read_parquet(ARRAY['{absolute}', '{relative}']) ORDER BY n").fetchall()
    assert rows == [(1,), (2,)]
