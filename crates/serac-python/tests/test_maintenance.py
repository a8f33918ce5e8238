"""Backups, checkpoints, freezing, block maps, figures, plans, readers, hints."""

import threading
import xml.etree.ElementTree

import polars
import pytest
import seracdb


def test_a_backup_beside_writers_is_of_one_moment(tmp_path):
    """Transfers between accounts keep their sum, and each writes a line into a ledger: a backup has
    the sum, as many lines as its counter says, and opens as a database."""
    accounts = 3_000
    with seracdb.connect(tmp_path / "db", durability="relaxed", autocommit=True) as con:
        con.execute("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL)")
        con.execute("CREATE TABLE ledger (id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY, n BIGINT UNIQUE)")
        con.execute("CREATE TABLE counter (n BIGINT)")
        con.execute("INSERT INTO counter VALUES (0)")
        con.execute(f"INSERT INTO account SELECT i, 100 FROM generate_series(1, {accounts}) AS g (i)")
        con.freeze("account")
        stop = threading.Event()
        failures = []

        def write():
            try:
                with con.connect(autocommit=True) as own:
                    take = own.prepare("UPDATE account SET balance = balance - $2 WHERE id = $1")
                    count = own.prepare("UPDATE counter SET n = n + 1")
                    note = own.prepare("INSERT INTO ledger (n) SELECT n FROM counter")
                    number = 0
                    while not stop.is_set():
                        number += 1
                        with own.transaction():
                            take(number * 7 % accounts + 1, number % 90)
                            take(number * 11 % accounts + 1, -(number % 90))
                            count()
                            note()
            except BaseException as failure:
                failures.append(failure)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            before = 0
            for round in range(4):
                report = con.backup(tmp_path / f"copy-{round}").fetchall()[0]
                ((after,),) = con.execute("SELECT n FROM counter").fetchall()
                if round == 1:
                    con.checkpoint()
                with seracdb.connect(tmp_path / f"copy-{round}", autocommit=True) as copy:
                    ((total, most),) = copy.execute("SELECT sum(balance), count(*) FROM account").fetchall()
                    assert (total, most) == (100 * accounts, accounts)
                    ((counted,),) = copy.execute("SELECT n FROM counter").fetchall()
                    lines = copy.execute("SELECT n FROM ledger ORDER BY n").fetchall()
                    assert lines == [(n,) for n in range(1, counted + 1)]
                    assert before <= counted <= after and report[:2] == (3, accounts + counted + 1)
                    # It works as any database does: keys, identities, further writes.
                    copy.execute("INSERT INTO ledger (n) VALUES ($1)", (counted + 1,))
                    with pytest.raises(seracdb.UniqueViolation):
                        copy.execute("INSERT INTO account VALUES (1, 1)")
                before = counted
        finally:
            stop.set()
            writer.join(timeout=60)
        assert not failures and before > 0


def test_backups_of_memory_and_of_a_backup(con, tmp_path):
    con.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) AS g (i)")
    report = con.backup(tmp_path / "one")
    assert report.columns == ["tables", "rows", "blocks_written", "blocks_copied", "bytes"]
    assert report.fetchall()[0][:4] == (1, 1_000, 1, 0)
    with seracdb.connect(tmp_path / "one", autocommit=True) as one:
        assert one.backup(tmp_path / "two").fetchall()[0][:4] == (1, 1_000, 0, 1)
        assert one.execute("BACKUP TO '{}'".format(tmp_path / "three")).rowcount == 1_000
    for name in ("two", "three"):
        with seracdb.connect(tmp_path / name) as copy:
            assert copy.execute("SELECT sum(i) FROM t").fetchone() == (500_500,)


def test_a_backup_that_cannot_be_written(con, tmp_path):
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(seracdb.OperationalError, match="not empty") as caught:
        con.backup(tmp_path)
    assert caught.value.sqlstate == "58030" and (tmp_path / "letter").read_text() == "dear"
    with pytest.raises(seracdb.InternalError, match="cannot run inside a transaction block"), con.transaction():
        con.backup(tmp_path / "new")
    con.execute("CREATE ROLE clerk")
    con.execute("SET ROLE clerk")
    with pytest.raises(seracdb.ProgrammingError) as refused:
        con.backup(tmp_path / "new")
    assert refused.value.sqlstate == "42501" and not (tmp_path / "new").exists()


def test_checkpoints_and_freezing_report(tmp_path):
    with seracdb.connect(tmp_path / "db", autocommit=True) as con:
        con.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 300000) AS g (i)")
        con.execute("CREATE TABLE u (a INT)")
        con.execute("INSERT INTO u VALUES (1)")
        con.execute('CREATE TABLE "never" (a INT) WITH (freeze_format = never)')
        con.execute('INSERT INTO "never" VALUES (1)')
        frozen = con.freeze("t")
        assert frozen.columns == ["schema_name", "table_name", "frozen_blocks", "blocks"]
        ((schema, table, count, blocks),) = frozen.fetchall()
        assert (schema, table) == ("public", "t") and count == blocks > 1
        assert {row[1] for row in con.freeze()} == {"t", "u"}
        with pytest.raises(seracdb.OperationalError, match="does not freeze"):
            con.freeze("never")
        with pytest.raises(seracdb.ProgrammingError):
            con.freeze("missing")
        report = con.checkpoint()
        assert report.columns == ["tables", "rows", "blocks_written", "blocks_kept", "bytes"]
        assert report.fetchall()[0][:4] == (3, 300_002, blocks + 2, 0)
        assert con.checkpoint().pl()["blocks_kept"].to_list() == [blocks + 2]


def test_block_maps(numbers):
    numbers.execute("CREATE SCHEMA s")
    numbers.execute('CREATE TABLE s."<b>" (a INT)')
    numbers.execute('INSERT INTO s."<b>" VALUES (1)')
    map = numbers.blocks("numbers")
    assert [row[:5] for row in map] == [("public", "numbers", 0, "frozen", 10_000)] and len(map) == 1
    lines = str(map).splitlines()
    assert lines[0].startswith("numbers: 1 blocks, 10,000 rows, ") and lines[1] in "Ff" and "frozen 1" in lines[2]
    numbers.execute("UPDATE numbers SET half = 0 WHERE id = 1")
    # The frame is of the moment of the call.
    assert map.pl()["state"].to_list() == ["frozen"] and map.arrow().num_rows == 1
    assert numbers.blocks("numbers").df()["state"].to_list() == ["hot"]
    picture = xml.etree.ElementTree.fromstring(numbers.blocks().svg())
    titles = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.split(",")[0] for title in titles] == ["block 0: hot", "block 0: hot"]
    texts = [text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("s.<b>: 1 blocks") for text in texts)
    assert numbers.blocks("<b>", schema="s")._repr_html_().startswith("<div><svg ")
    with pytest.raises(seracdb.ProgrammingError):
        numbers.blocks("missing")
    numbers.execute("CREATE TABLE empty (a INT)")
    assert str(numbers.blocks("empty")) == "there are no blocks" and "no blocks" in numbers.blocks("empty").svg()


def test_large_maps_stay_small(con):
    from seracdb._blocks import _Map

    def row(no, state):
        return {"block": no, "state": state, "rows": 10, "empty_slots": 0, "bytes": 100}

    table = _Map("t", [row(no, "hot" if no == 9_999 else "frozen") for no in range(10_000) if no != 5_000])
    assert (table.blocks, table.blocks_a_cell, len(table.cells)) == (10_000, 5, 2_000)
    assert table.counts["empty"] == 1 and [cell.state for cell in table.cells if cell.state != "frozen"] == ["hot"]


def test_figures(con):
    con.execute("CREATE TABLE t (a INT)")
    con.execute("INSERT INTO t VALUES (1)")
    metrics = con.metrics()
    frame = metrics.pl()
    assert frame.filter(polars.col("name") == "serac_transactions_begun_total").height == 1
    assert len(metrics) == frame.height == metrics.arrow().num_rows == len(metrics.df())


def test_results_can_be_read_again_and_are_shown_in_part(con):
    result = con.execute("SELECT i, '<b>' || i AS name, NULL AS n FROM generate_series(1, 5000) AS g (i)").result()
    assert result.fetchall() == result.fetchall() == list(result) and len(result) == 5_000
    assert result.pl().height == result.arrow().num_rows == 5_000
    text = repr(result)
    assert text.count("\n") == 24 and "(5,000 rows, the first 20 shown)" in text and "NULL" in text
    page = result._repr_html_()
    assert page.count("<tr>") == 21 and "&lt;b&gt;1<" in page and "<b>" not in page
    wide = con.execute("SELECT " + ", ".join(f"{i} AS c{i}" for i in range(100))).result()
    assert "100 columns, the first 30 shown" in wide._repr_html_() and "c30" not in wide._repr_html_()
    # One row of the point path, and what is left after some were read.
    con.execute("CREATE TABLE k (id INT PRIMARY KEY)")
    con.execute("INSERT INTO k VALUES (1)")
    assert con.execute("SELECT id FROM k WHERE id = $1", (1,)).result().fetchall() == [(1,)]
    cursor = con.execute("SELECT i FROM generate_series(1, 10) AS g (i)")
    cursor.fetchmany(4)
    assert [row[0] for row in cursor.result()] == list(range(5, 11))
    with pytest.raises(seracdb.InterfaceError):
        cursor.fetchone()


def test_plans(numbers):
    plan = numbers.explain("SELECT count(*) FROM numbers WHERE half > $1", (10,))
    assert "SeracScanExec" in str(plan) and "ms" not in str(plan)
    ran = numbers.explain("SELECT name, count(*) FROM numbers WHERE half < 5 GROUP BY name", analyze=True)
    kinds = [node["Node Type"] for _, node in ran.operators()]
    assert "SeracScanExec" in kinds and "rows" in str(ran) and "run in" in str(ran)
    page = ran._repr_html_()
    assert page.count("<div style=\"margin-left") == len(kinds) and "background:#e0703c" in page
    hostile = numbers.explain("SELECT id FROM numbers WHERE name = '<script>alert(1)</script>'")
    assert "<script>" not in hostile._repr_html_() and "&lt;script&gt;" in hostile._repr_html_()
    with pytest.raises(seracdb.ProgrammingError):
        numbers.explain("SELECT nothing FROM numbers")


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_reader_stays_one(tmp_path, autocommit):
    with seracdb.connect(tmp_path / "db", autocommit=True) as con:
        con.execute("CREATE TABLE t (a INT PRIMARY KEY)")
        con.execute("CREATE SEQUENCE s")
        con.execute("INSERT INTO t VALUES (1)")
        (tmp_path / "rows.csv").write_text("5\n6\n")
        reader = con.connect(read_only=True, autocommit=autocommit)
        assert reader.execute("SELECT a FROM t").fetchall() == [(1,)]
        change = reader.prepare("INSERT INTO t VALUES ($1)")
        attempts = (
            "INSERT INTO t VALUES (2)", "UPDATE t SET a = 2", "DELETE FROM t", "CREATE TABLE u (a INT)", "DROP TABLE t",
            "CREATE ROLE r", "SELECT nextval('s')", "TRUNCATE t", f"COPY t FROM '{tmp_path / 'rows.csv'}'",
            "WITH d AS (DELETE FROM t RETURNING a) SELECT * FROM d", "SELECT a FROM t FOR UPDATE",
        )
        openings = (
            None, "SET default_transaction_read_only = off", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "RESET default_transaction_read_only", "RESET ALL", "DISCARD ALL", "BEGIN READ WRITE",
            "BEGIN; SET TRANSACTION READ WRITE", "BEGIN; SET transaction_read_only = off",
            "BEGIN; SET LOCAL default_transaction_read_only = off",
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE",
            "SELECT set_config('default_transaction_read_only', 'off', false)",
            "SELECT set_config('transaction_read_only', 'off', true)", "BEGIN; SAVEPOINT a; ROLLBACK TO a",
        )
        for opening in openings:
            for attempt in attempts:
                reader.rollback()
                if opening is not None:
                    try:
                        reader.execute(opening).close()
                    except seracdb.InternalError as error:
                        assert error.sqlstate in ("25006", "25001"), opening
                        reader.rollback()
                with pytest.raises(seracdb.Error) as caught:
                    reader.execute(attempt)
                assert caught.value.sqlstate in ("25006", "25P02"), (opening, attempt, caught.value)
            reader.rollback()
            with pytest.raises(seracdb.InternalError):
                change(5)
            with pytest.raises(seracdb.InternalError):
                reader.append("t", polars.DataFrame({"a": [9]}))
        reader.rollback()
        assert reader.execute("SHOW transaction_read_only").fetchone() == ("on",)
        assert reader.read_only and reader.connect().read_only and not con.connect().read_only
        with pytest.raises(seracdb.ProgrammingError, match="cannot serve"):
            reader.serve(pg="127.0.0.1:0")
        # What only reads goes on, and its own temporary tables are its own.
        reader.execute("CREATE TEMP TABLE mine (a INT)")
        reader.execute("INSERT INTO mine VALUES (1)")
        assert reader.execute("SELECT count(*) FROM mine, t").fetchone() == (1,)
        reader.close()
        assert con.execute("SELECT a FROM t").fetchall() == [(1,)]
        with pytest.raises(seracdb.InternalError, match="read-only session") as caught:
            con.connect(read_only=True).execute("SET default_transaction_read_only = off")
        assert caught.value.sqlstate == "25006"


def test_hints(con):
    for statement, hint in (
        ("SELECT no_such_function(1)", "No function matches"),
        ("SELECT 1 + DATE '2024-01-01' * 2", "operator"),
        ("SELECT to_timestamp('13 PM', 'HH12 AM')", "Use the 24-hour clock"),
        ("SELECT json_build_object('a')", "must consist of alternating keys and values"),
    ):
        with pytest.raises(seracdb.Error) as caught:
            con.execute(statement).fetchall()
        assert caught.value.hint and hint in caught.value.hint, caught.value
        assert f"HINT: {caught.value.hint}" in str(caught.value)
    # An error that comes out of a constraint keeps its hint.
    con.execute("CREATE TABLE t (a TEXT CHECK (to_timestamp(a, 'HH12 AM') IS NOT NULL))")
    with pytest.raises(seracdb.Error) as caught:
        con.execute("INSERT INTO t VALUES ('13 PM')")
    assert caught.value.hint and "24-hour clock" in caught.value.hint
    with pytest.raises(seracdb.Error) as caught:
        con.execute("SELECT * FROM nothing")
    assert caught.value.hint is None
