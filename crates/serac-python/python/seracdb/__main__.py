"""A shell: ``python -m seracdb [folder]``."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

import seracdb
from seracdb import _result, _script

#: Rows that are shown of a result in a terminal.
_SHOWN_ROWS = 100
_ROWS_AT_A_TIME = 1_000
_HISTORY = "~/.seracdb_history"
_HISTORY_LINES = 2_000

_HELP = """\
\\d [NAME]        tables and views, or the columns of one
\\blocks [TABLE]  the blocks of a table, or of all, as a map
\\metrics         the figures of the database
\\timing          show how long statements take, or not
\\q               quit (also Ctrl-D)
Statements end with a semicolon. Ctrl-C cancels what runs."""

_RELATIONS = """\
SELECT table_schema AS schema, table_name AS name,
    CASE table_type WHEN 'BASE TABLE' THEN 'table' ELSE lower(table_type) END AS type
FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1, 2"""
_NAMES = """\
SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
UNION SELECT column_name FROM information_schema.columns
WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"""
_WORDS = """\
ALTER ANALYZE AND AS BEGIN BETWEEN BY CASE CHECKPOINT COMMIT COPY CREATE DELETE DESCRIBE DISTINCT DROP ELSE END
EXISTS EXPLAIN FREEZE FROM GROUP HAVING IN INDEX INSERT INTO IS JOIN LEFT LIKE LIMIT NOT NULL ON OR ORDER OVER
PARTITION PRIMARY KEY ROLLBACK SELECT SET SUMMARIZE TABLE THEN UNION UPDATE USING VALUES VIEW WHEN WHERE WITH""".split()


def _show_table(cursor: seracdb.Cursor, out: IO[str], most: int | None) -> None:
    result = cursor.result()
    if most is None:
        most = len(result)
    rows = result._batches.rows(most)
    out.write(_result.text_table(result.columns, rows) + "\n")
    below = f"{len(result):,} row" + ("" if len(result) == 1 else "s")
    if len(rows) < len(result):
        below += f", the first {len(rows)} shown"
    out.write(f"({below})\n")


def _names(cursor: seracdb.Cursor) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def _show_csv(cursor: seracdb.Cursor, out: IO[str], most: int | None) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_names(cursor))
    while rows := cursor.fetchmany(_ROWS_AT_A_TIME):
        writer.writerows([_plain(value) for value in row] for row in rows)


def _plain(value: Any) -> Any:
    """A value as SQL writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return value


def _as_json(value: Any) -> Any:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)


def _finite(value: Any) -> Any:
    # JSON has no NaN and no infinity.
    return str(value) if isinstance(value, float) and value - value != 0 else value


def _show_json(cursor: seracdb.Cursor, out: IO[str], most: int | None) -> None:
    names = _names(cursor)
    begin = "["
    while rows := cursor.fetchmany(_ROWS_AT_A_TIME):
        for row in rows:
            named = dict(zip(names, map(_finite, row)))
            out.write(begin + "\n " + json.dumps(named, default=_as_json, ensure_ascii=False))
            begin = ","
    out.write("[]\n" if begin == "[" else "\n]\n")


def _show_markdown(cursor: seracdb.Cursor, out: IO[str], most: int | None) -> None:
    def line(values: Sequence[Any]) -> str:
        texts = ("" if value is None else str(_plain(value)) for value in values)
        return "| " + " | ".join(text.replace("|", "\\|").replace("\n", "<br>") for text in texts) + " |\n"

    names = _names(cursor)
    rows = cursor.fetchmany(_ROWS_AT_A_TIME)
    right = [any(_result.is_number(row[at]) for row in rows) for at in range(len(names))]
    out.write(line(names) + "|" + "|".join("---:" if at_right else "---" for at_right in right) + "|\n")
    while rows:
        out.writelines(line(row) for row in rows)
        rows = cursor.fetchmany(_ROWS_AT_A_TIME)


def _write_arrow(cursor: seracdb.Cursor, out: IO[str], most: int | None) -> None:
    import pyarrow

    reader = cursor.reader()
    with pyarrow.ipc.new_stream(getattr(out, "buffer", out), reader.schema) as stream:
        for batch in reader:
            stream.write_batch(batch)


_FORMATS: dict[str, Callable[[seracdb.Cursor, IO[str], int | None], None]] = {
    "table": _show_table,
    "csv": _show_csv,
    "json": _show_json,
    "markdown": _show_markdown,
    "arrow": _write_arrow,
}


class Shell:
    """Runs statements and commands, and shows their results."""

    def __init__(self, con: seracdb.Connection, form: str, out: IO[str], errors: IO[str], most: int | None) -> None:
        self.con = con
        self._show = _FORMATS[form]
        self._is_table = form == "table"
        self._out = out
        self._errors = errors
        self._most = most
        self._has_timing = False

    def statement(self, text: str, line: int = 1) -> bool:
        """Runs a statement, which begins at a line of a script. Whether it has succeeded."""
        began = time.perf_counter()
        try:
            cursor = self.con.execute(text)
            if cursor.description is not None:
                self._show(cursor, self._out, self._most)
            elif self._is_table:
                self._out.write("done\n" if cursor.rowcount <= 0 else f"done, {cursor.rowcount:,} rows\n")
        except seracdb.Error as error:
            self._out.flush()
            self._errors.write(shown_error(error, text, line) + "\n")
            return False
        except ImportError as error:
            self._errors.write(f"{error}\n")
            return False
        finally:
            for severity, _, message in [] if self.con.closed else self.con.notices():
                self._errors.write(f"{severity}: {message}\n")
        if self._has_timing:
            self._errors.write(f"{1e3 * (time.perf_counter() - began):,.1f} ms\n")
        self._out.flush()
        return True

    def script(self, text: str) -> bool:
        """Runs the statements of a script, up to the first that fails."""
        return all(self.statement(statement.text, statement.line) for statement in _script.all_of(text))

    def command(self, line: str) -> bool:
        """Runs a backslash command. False ends the shell."""
        word, _, argument = line.strip().rstrip(";").partition(" ")
        argument = argument.strip()
        if word in ("\\q", "\\quit"):
            return False
        if word in ("\\?", "\\h", "\\help"):
            self._out.write(_HELP + "\n")
        elif word in ("\\d", "\\dt"):
            self.statement(f"DESCRIBE {argument}" if argument else _RELATIONS)
        elif word == "\\metrics":
            self.statement("SELECT * FROM serac_metrics")
        elif word == "\\timing":
            self._has_timing = not self._has_timing
            self._out.write(f"timing is {'on' if self._has_timing else 'off'}\n")
        elif word == "\\blocks":
            schema, _, table = argument.rpartition(".")
            try:
                self._out.write(f"{self.con.blocks(table or None, schema=schema or 'public')}\n")
            except seracdb.Error as error:
                self._errors.write(f"{error}\n")
        else:
            self._errors.write(f"there is no command {word}: \\? lists the commands\n")
        self._out.flush()
        return True

    def interact(self) -> None:
        """Reads statements from a terminal."""
        _use_readline(self.con)
        self._out.write(f"SeracDB {seracdb.__version__}. Statements end with a semicolon; \\? lists commands.\n")
        typed = ""
        while True:
            try:
                line = input("seracdb> " if not typed else "    ...> ")
            except EOFError:
                self._out.write("\n")
                return
            except KeyboardInterrupt:
                self._out.write("\n")
                typed = ""
                continue
            if not typed and line.lstrip().startswith("\\"):
                if not self.command(line):
                    return
                continue
            statements, typed = _script.split(typed + line + "\n")
            for statement in statements:
                try:
                    if not self.statement(statement.text):
                        break
                except KeyboardInterrupt:
                    self._errors.write("canceled\n")
                    break


def shown_error(error: seracdb.Error, text: str, line: int = 1) -> str:
    """An error with the line of the statement in which it was found, and a mark below the place."""
    shown = f"ERROR {error.sqlstate}: {error.message}" if error.sqlstate else f"ERROR: {error.message}"
    if error.position is not None:
        row, column = error.position
        lines = text.split("\n")
        if 1 <= row <= len(lines):
            head = f"LINE {line + row - 1}: "
            source = lines[row - 1].replace("\t", " ")
            # Of a long line, what stands around the place.
            first = max(0, column - 60)
            shown += f"\n{head}{source[first : first + 100]}\n{' ' * (len(head) + column - 1 - first)}^"
    if error.detail:
        shown += f"\nDETAIL: {error.detail}"
    if error.hint:
        shown += f"\nHINT: {error.hint}"
    return shown


def _use_readline(con: seracdb.Connection) -> None:
    """Lines can be edited, completed, and found again, where Python has readline."""
    try:
        import readline
    except ImportError:
        return
    import atexit

    path = os.path.expanduser(_HISTORY)
    try:
        readline.read_history_file(path)
    except OSError:
        # The first time, or nobody may read it.
        pass

    def keep() -> None:
        try:
            readline.write_history_file(path)
        except OSError:
            pass

    readline.set_history_length(_HISTORY_LINES)
    atexit.register(keep)
    found: list[str] = []

    def complete(start: str, number: int) -> str | None:
        if number == 0:
            try:
                names = [name for (name,) in con.execute(_NAMES).fetchall()]
            except seracdb.Error:
                names = []
            words = [word if start.isupper() else word.lower() for word in _WORDS]
            found[:] = sorted({name for name in [*names, *words] if name.startswith(start)})
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n()[]{},;.=<>+-*/%'\"")
    readline.parse_and_bind("tab: complete")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the shell. Returns the exit status: 1 after an error of a script or a statement."""
    parser = argparse.ArgumentParser(prog="python -m seracdb", description="A shell for SeracDB.")
    parser.add_argument("folder", nargs="?", default=":memory:", help="the database's; without it, one in memory")
    command_help = "run this, and end; may be given again"
    parser.add_argument("-c", dest="commands", metavar="SQL", action="append", help=command_help)
    parser.add_argument("--read-only", action="store_true", help="only read")
    formats = parser.add_mutually_exclusive_group()
    for name in _FORMATS:
        help_text = f"show results as {name}" + (" (IPC stream, needs pyarrow)" if name == "arrow" else "")
        formats.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=help_text)
    formats.set_defaults(form="table")
    given = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Texts are UTF-8, whatever the terminal says; what it cannot show is replaced.
        sys.stdout.reconfigure(errors="replace")
    is_interactive = not given.commands and sys.stdin.isatty()
    try:
        con = seracdb.connect(given.folder, read_only=given.read_only, autocommit=True, scan_variables=False)
    except seracdb.Error as error:
        print(shown_error(error, ""), file=sys.stderr)
        return 1
    with con:
        most = _SHOWN_ROWS if sys.stdout.isatty() else None
        shell = Shell(con, given.form, sys.stdout, sys.stderr, most)
        try:
            if given.commands:
                return 0 if all(shell.script(text) for text in given.commands) else 1
            if not is_interactive:
                return 0 if shell.script(sys.stdin.read()) else 1
            shell.interact()
        except KeyboardInterrupt:
            print("canceled", file=sys.stderr)
            return 130
        except BrokenPipeError:
            # Whoever reads has seen enough. Python would complain when it flushes at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
