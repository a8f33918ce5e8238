"""Maps of the blocks of tables: which are hot, which are frozen, and how full they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seracdb._result import Result

#: The states of blocks, with their colours and letters.
_STATES = {
    "hot": ("#f2555a", "H"),
    "cooling": ("#e8c547", "C"),
    "freezing": ("#c9b8f0", "G"),
    "frozen": ("#2c8fe0", "F"),
    "empty": ("#b8b8b8", "."),
}
#: A map has at most so many cells. Each stands for several blocks if a table has more.
_MOST_CELLS = 2048
_CELLS_A_LINE = 64
_CELL = 11


class _Cell:
    __slots__ = ("state", "rows", "slots", "first", "last")

    def __init__(self, state: str, rows: int, slots: int, first: int, last: int) -> None:
        self.state = state
        self.rows = rows
        self.slots = slots
        self.first = first
        self.last = last


#: A cell of several blocks shows the first of their states in this order.
_ORDER = ("freezing", "cooling", "hot", "frozen", "empty")


def _merged(cells: Sequence[_Cell]) -> _Cell:
    state = min((cell.state for cell in cells), key=_ORDER.index)
    rows, slots = sum(cell.rows for cell in cells), sum(cell.slots for cell in cells)
    return _Cell(state, rows, slots, cells[0].first, cells[-1].last)


class _Map:
    """The cells of one table."""

    def __init__(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        self.name = name
        self.rows = sum(row["rows"] for row in rows)
        self.bytes = sum(row["bytes"] for row in rows)
        cells: list[_Cell] = []
        for row in rows:
            # Blocks that were given back have no row.
            cells += [_Cell("empty", 0, 0, no, no) for no in range(len(cells), row["block"])]
            state = row["state"] if row["rows"] else "empty"
            cells.append(_Cell(state, row["rows"], row["rows"] + row["empty_slots"], row["block"], row["block"]))
        self.blocks = len(cells)
        self.counts = {state: sum(cell.state == state for cell in cells) for state in _STATES}
        size = max(1, -(-len(cells) // _MOST_CELLS))
        self.blocks_a_cell = size
        self.cells = [_merged(cells[at : at + size]) for at in range(0, len(cells), size)]

    def title(self) -> str:
        return f"{self.name}: {self.blocks:,} blocks, {self.rows:,} rows, {self.bytes / 1e6:,.1f} MB"

    def legend(self) -> str:
        counts = [f"{state} {count:,}" for state, count in self.counts.items() if count or state != "empty"]
        if self.blocks_a_cell > 1:
            counts.append(f"({self.blocks_a_cell} blocks a cell)")
        return "   ".join(counts)


class BlockMap(Result):
    """The blocks of tables, a row for each: ``schema_name``, ``table_name``, ``block``, ``state``,
    ``rows``, ``empty_slots``, ``heap_bytes``, ``garbage_bytes``, ``bytes``.

    Printed, it is a map with a letter a block: H hot, C cooling, G being gathered, F frozen; small
    if less than half of the slots hold rows. Notebooks show it as a picture.
    """

    def _maps(self) -> list[_Map]:
        columns = self.columns
        tables: dict[str, list[dict[str, Any]]] = {}
        for values in self.fetchall():
            row = dict(zip(columns, values))
            schema, table = row["schema_name"], row["table_name"]
            name = table if schema == "public" else f"{schema}.{table}"
            tables.setdefault(name, []).append(row)
        return [_Map(name, rows) for name, rows in tables.items()]

    def __str__(self) -> str:
        parts = []
        for table in self._maps():
            parts.append(table.title())
            letters = ""
            for cell in table.cells:
                letter = _STATES[cell.state][1]
                letters += letter.lower() if 2 * cell.rows < cell.slots else letter
            parts += [letters[at : at + _CELLS_A_LINE] for at in range(0, len(letters), _CELLS_A_LINE)]
            parts.append(table.legend())
        return "\n".join(parts) if parts else "there are no blocks"

    __repr__ = __str__

    def svg(self) -> str:
        """The maps as a picture."""
        import html

        parts, y = [], 0
        width = _CELLS_A_LINE * _CELL
        for table in self._maps():
            y += 16
            parts.append(f'<text x="0" y="{y}">{html.escape(table.title())}</text>')
            y += 6
            for at, cell in enumerate(table.cells):
                x, line = at % _CELLS_A_LINE * _CELL, at // _CELLS_A_LINE
                share = cell.rows / cell.slots if cell.slots else 0.0
                opacity = 0.25 if cell.state == "empty" else 0.35 + 0.65 * share
                blocks = f"block {cell.first}" if cell.first == cell.last else f"blocks {cell.first} to {cell.last}"
                parts.append(
                    f'<rect x="{x}" y="{y + line * _CELL}" width="{_CELL - 1}" height="{_CELL - 1}" '
                    f'fill="{_STATES[cell.state][0]}" fill-opacity="{opacity:.2f}">'
                    f"<title>{blocks}: {cell.state}, {cell.rows:,} rows, {100 * share:.0f} % full</title></rect>"
                )
            y += -(-len(table.cells) // _CELLS_A_LINE) * _CELL + 14
            x = 0
            for state, (color, _) in _STATES.items():
                if table.counts[state] or state != "empty":
                    text = f"{state} {table.counts[state]:,}"
                    parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{color}"/>')
                    parts.append(f'<text x="{x + 14}" y="{y}">{text}</text>')
                    x += 30 + 7 * len(text)
            if table.blocks_a_cell > 1:
                parts.append(f'<text x="{x}" y="{y}">({table.blocks_a_cell} blocks a cell)</text>')
            y += 12
        if not parts:
            parts, y = ['<text x="0" y="16">there are no blocks</text>'], 24
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
            f'font-family="sans-serif" font-size="12" fill="currentColor">{"".join(parts)}</svg>'
        )

    def _repr_html_(self) -> str:
        return f"<div>{self.svg()}</div>"
