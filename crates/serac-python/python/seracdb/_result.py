"""Rows in memory, which can be read again and again, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seracdb._frames import Frames

if TYPE_CHECKING:
    from seracdb import _seracdb

#: Rows and columns that are shown of a result.
SHOWN_ROWS = 20
SHOWN_COLUMNS = 30
#: Characters that are shown of a value.
SHOWN_CHARACTERS = 120


def text_of(value: Any, null: str = "NULL") -> str:
    """A value as one line of at most ``SHOWN_CHARACTERS`` characters."""
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, bytearray)):
        text = "\\x" + value[:SHOWN_CHARACTERS].hex()
    else:
        text = str(value)
    if len(text) > SHOWN_CHARACTERS:
        text = text[: SHOWN_CHARACTERS - 1] + "…"
    return "".join(character if character.isprintable() else " " for character in text)


def is_number(value: Any) -> bool:
    """Whether a value stands at the right of its column."""
    import decimal

    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as a table of text."""
    names = [text_of(name) for name in columns]
    cells = [[text_of(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(names)]
    right = [any(is_number(row[at]) for row in rows) for at in range(len(names))]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if at_right else text.ljust(width)
            for text, width, at_right in zip(texts, widths, right)
        ]
        return "│ " + "   ".join(padded) + " │"

    inner = sum(widths) + 3 * (len(widths) - 1) + 2 if widths else 0
    lines = ["┌" + "─" * inner + "┐", line(names), "╞" + "═" * inner + "╡"]
    lines += [line(row) for row in cells]
    lines.append("└" + "─" * inner + "┘")
    return "\n".join(lines)


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """Rows as a table of HTML. Everything in it is escaped."""
    import html

    right = [any(is_number(row[at]) for row in rows) for at in range(len(columns))]

    def cell(value: Any, at_right: bool) -> str:
        if value is None:
            return '<td style="opacity:.5">NULL</td>'
        align = "right" if at_right else "left"
        return f'<td style="text-align:{align}">{html.escape(text_of(value))}</td>'

    head = "".join(
        f'<th style="text-align:{"right" if at_right else "left"}">{html.escape(text_of(name))}</th>'
        for name, at_right in zip(columns, right)
    )
    body = "".join(
        "<tr>" + "".join(cell(value, at_right) for value, at_right in zip(row, right)) + "</tr>" for row in rows
    )
    below = f"<p>{html.escape(caption)}</p>" if caption else ""
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


class Result(Frames):
    """Rows in memory. They can be read again and again: as tuples, or as ``.arrow()``, ``.df()``,
    ``.pl()``. Notebooks show the first of them as a table.
    """

    def __init__(self, batches: _seracdb.Batches) -> None:
        self._batches = batches

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._batches.columns

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        return self._batches.rows(len(self._batches))

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._batches.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self._batches.__arrow_c_schema__()

    def _stream_of_durations(self) -> Any:
        return self._batches._stream_of_durations()

    def _shown(self) -> tuple[list[str], list[tuple[Any, ...]], str]:
        """The columns and rows that are shown, and what is said below them."""
        rows = [row[:SHOWN_COLUMNS] for row in self._batches.rows(SHOWN_ROWS)]
        below = _counted(len(self), "row")
        if len(rows) < len(self):
            below += f", the first {len(rows)} shown"
        if len(self.columns) > SHOWN_COLUMNS:
            below += f"; {len(self.columns)} columns, the first {SHOWN_COLUMNS} shown"
        return self.columns[:SHOWN_COLUMNS], rows, below

    def __repr__(self) -> str:
        columns, rows, below = self._shown()
        return f"{text_table(columns, rows)}\n({below})"

    def _repr_html_(self) -> str:
        columns, rows, below = self._shown()
        return html_table(columns, rows, below)
