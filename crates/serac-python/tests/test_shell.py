"""``python -m seracdb``, and the bars of long statements."""

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from typing import Any

import pyarrow
import pytest
import seracdb
from seracdb import _progress, _script


def shell(*arguments, given="", status=0):
    """What the shell writes to its output and to standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "seracdb", *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def test_formats(tmp_path):
    query = (
        "SELECT * FROM (VALUES (1, 'a|b', true, NULL), (2, 'line 1\nline \"2\"', false, 0.5)) "
        "AS t (n, text, flag, half)"
    )
    out, _ = shell("-c", query)
    assert out.splitlines()[0].startswith("┌─") and "(2 rows)" in out and "NULL" in out
    out, _ = shell("--csv", "-c", query)
    assert list(csv.reader(io.StringIO(out))) == [
        ["n", "text", "flag", "half"],
        ["1", "a|b", "true", ""],
        ["2", 'line 1\nline "2"', "false", "0.5"],
    ]
    out, _ = shell("--json", "-c", query)
    rows = json.loads(out)
    assert rows[0] == {"n": 1, "text": "a|b", "flag": True, "half": None} and rows[1]["half"] == "0.5"
    out, _ = shell("--markdown", "-c", query)
    assert out.splitlines() == [
        "| n | text | flag | half |",
        "|---:|---|---|---:|",
        "| 1 | a\\|b | true |  |",
        '| 2 | line 1<br>line "2" | false | 0.5 |',
    ]
    with open(tmp_path / "out.arrow", "wb") as file:
        subprocess.run([sys.executable, "-m", "seracdb", "--arrow", "-c", query], stdout=file, check=True, timeout=120)
    with pyarrow.ipc.open_stream(tmp_path / "out.arrow") as stream:
        assert stream.read_all().column("n").to_pylist() == [1, 2]
    assert json.loads(shell("--json", "-c", "SELECT 1 AS a WHERE false")[0]) == []
    out, _ = shell("--json", "-c", "SELECT 'NaN'::FLOAT AS a, '\\x00ff'::BYTEA AS b")
    assert json.loads(out) == [{"a": "nan", "b": "\\x00ff"}]


def test_scripts_and_errors(tmp_path):
    folder = tmp_path / "db"
    script = "CREATE TABLE t (a INT);\n-- one; two\nINSERT INTO t VALUES (1), (2);\nSELECT ';', a FROM t"
    out, _ = shell(folder, "--csv", given=script)
    assert out == "?column?,a\n;,1\n;,2\n" or out.endswith("\n;,1\n;,2\n")
    out, errors = shell(folder, given="SELECT 1;\n\nSELECT a,\n  wrong\nFROM t; SELECT 2", status=1)
    assert "(1 row)" in out and out.count("row)") == 1
    lines = errors.splitlines()
    assert lines[0].startswith("ERROR 42703: ") and lines[1] == "LINE 4:   wrong" and lines[2] == "          ^"
    _, errors = shell("-c", "SELECT no_such_function(1)", status=1)
    assert "\nHINT: " in errors
    _, errors = shell(folder, "--read-only", "-c", "DELETE FROM t", status=1)
    assert "25006" in errors
    _, errors = shell(tmp_path / "no" / "such", "--read-only", status=1)
    assert "there is no database" in errors
    _, errors = shell("-c", "DROP TABLE IF EXISTS nothing")
    assert "NOTICE: " in errors
    # A reader that has seen enough.
    long = "SELECT i FROM generate_series(1, 1000000) AS g (i)"
    command = f"{sys.executable} -m seracdb --csv -c '{long}' | head -n 2"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == "i\n1\n" and "Traceback" not in done.stderr


def test_statements_of_a_script():
    def texts(script):
        return [statement.text for statement in _script.all_of(script)]

    for text in (
        "SELECT ';'", "SELECT E'\\';'", 'SELECT ";"', "SELECT $$;$$", "SELECT $a$ ; $$ ; $a$",
        "SELECT /* ; /* ; */ ; */ 1",
        "SELECT 1 -- ;\n + 1", "SELECT 'it''s;'", "SELECT type'a' , a$b",
    ):
        assert texts(f"{text};{text} ; ;") == [text, text]
        assert _script.split(text) == ([], text)
    assert texts("") == texts(" ; -- nothing\n /* at all */") == []
    for unfinished in ("SELECT ';", 'SELECT ";', "SELECT $a$;", "SELECT /* ;"):
        statements, rest = _script.split("SELECT 1; " + unfinished)
        assert [statement.text for statement in statements] == ["SELECT 1"] and rest == " " + unfinished
    lines = [statement.line for statement in _script.all_of("SELECT 1;\n\n SELECT\n2; SELECT 3;\nSELECT 4")]
    assert lines == [1, 3, 4, 5]
    # Long texts take no longer than they are.
    began = time.monotonic()
    assert len(_script.all_of("SELECT '" + "''" * 200_000 + "';" + "SELECT 1;" * 20_000)) == 20_001
    assert time.monotonic() - began < 10


class Terminal:
    """A shell in a terminal."""

    def __init__(self, *arguments, home):
        environment = {**os.environ, "HOME": str(home), "TERM": "dumb", "COLUMNS": "200"}
        self.process, self.file = pty.fork()
        if self.process == 0:
            os.execve(sys.executable, [sys.executable, "-m", "seracdb", *map(str, arguments)], environment)
        self.seen = ""

    def until(self, pattern, seconds=60):
        """Reads until the output that was not looked at has a pattern; returns what was read."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.seen)) is None:
            assert time.monotonic() < end, self.seen
            if select.select([self.file], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.file, 65_536).decode(errors="replace")
                except OSError:
                    # The shell has ended.
                    assert re.search(pattern, self.seen), self.seen
        read, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return read

    def type(self, text):
        os.write(self.file, text.encode())

    def ends(self):
        _, status = os.waitpid(self.process, 0)
        os.close(self.file)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_in_a_terminal(tmp_path):
    shell = Terminal(tmp_path / "db", home=tmp_path)
    shell.until("seracdb> ")
    shell.type("CREATE TABLE t (a INT, b TEXT);\n")
    shell.until("(?s)done.*seracdb> ")
    shell.type("SELECT 'x;\n")
    shell.until("\\.\\.\\.> ")
    shell.type("y' AS two, 6 * 7 AS answer\n;\n")
    assert "42" in shell.until("\\(1 row\\)")
    shell.until("seracdb> ")
    shell.type("\\d\n")
    assert "table" in shell.until("\\(1 row\\)")
    shell.type("\\d t\n")
    assert "integer" in shell.until("\\(2 rows\\)")
    shell.type("\\blocks\n")
    shell.until("there are no blocks")
    shell.type("SELECT wrong FROM t;\n")
    shell.until("(?s)ERROR 42703.*LINE 1: SELECT wrong FROM t\\s+\\^")
    shell.type("\\nonsense\n")
    shell.until("there is no command \\\\nonsense")
    # A long statement has a bar, and Ctrl-C cancels it.
    shell.until("seracdb> ")
    shell.type("SELECT count(*) FROM generate_series(1, 2000000000) AS a (i) WHERE i % 7 = 8;\n")
    shell.until("running 0:0[2-9]", 30)
    os.kill(shell.process, signal.SIGINT)
    shell.until("canceled")
    shell.until("seracdb> ")
    shell.type("SELECT i FROM generate_series(1, 5000) AS g (i);\n")
    shell.until("\\(5,000 rows, the first 100 shown\\)")
    shell.type("\\timing\n")
    shell.until("timing is on")
    shell.type("SELECT 1;\n")
    shell.until("[0-9.]+ ms")
    shell.type("\\q\n")
    assert shell.ends() == 0


def test_bars_know_how_far_a_scan_is(con):
    con.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 1000000) AS g (i)")
    con.execute("SET threads = 1")
    assert con._progress() is not None
    cursor = con.execute("SELECT i FROM t WHERE i % 2 = 0")
    cursor.fetchall()
    seconds, is_computing, computed, (done, total, what) = con._progress()
    blocks = len(con.blocks("t"))
    assert (done, total, what, is_computing) == (blocks, blocks, "blocks", False) and seconds < 60 and computed > 0


def test_a_bar_never_goes_back(monkeypatch):
    shown: list[tuple[str, float]] = []
    cleared = ("cleared", 0.0)

    class Bar:
        def show(self, text, share):
            shown.append((text, share))

        def clear(self):
            shown.append(cleared)

    class Connection:
        now: Any

        def _progress(self):
            return self.now

    monkeypatch.setattr(_progress, "_Terminal", Bar)
    watched: Any = _progress._Watched()
    con = Connection()
    for now in (
        None,
        (1.0, True, 5, (0, 10, "blocks")),
        (2.5, True, 5, (5, 10, "blocks")),
        (2.7, True, 5, (5, 20, "blocks")),
        (2.9, False, 6, (20, 20, "blocks")),
        (3.1, False, 6, (20, 20, "blocks")),
        (0.1, True, 6, (0, 0, "blocks")),
        (2.3, True, 6, (7_000, 0, "rows")),
    ):
        con.now = now
        watched.look(con)
    assert [share for _, share in shown[:3]] == [0.5, 0.5, 0.99] and shown[3] == cleared
    assert shown[0][0] == "█" * 15 + "·" * 15 + "  50 % 0:02" and shown[4] == ("running 0:02 7,000 rows", 0.0)


def test_bars_are_off_outside_of_terminals():
    assert not _progress.is_wanted()
    with seracdb.connect() as con:
        assert not con._progress_is_shown and not con.connect()._progress_is_shown
    with seracdb.connect(progress=True) as con:
        assert con._progress_is_shown and con.connect()._progress_is_shown


def test_a_bar_is_drawn_and_removed(capsys):
    with seracdb.connect(progress=True, autocommit=True) as con:
        con.execute("SELECT pg_sleep(2.8)").fetchall()
        time.sleep(0.5)
    drawn = capsys.readouterr().err
    assert "running 0:02" in drawn and drawn.endswith("\r") and drawn.rstrip("\r").endswith(" ")
