"""Plans of queries, readable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: Characters of an operator's details in a picture.
_DETAILS = 110


class Plan:
    """The plan of a query: ``print`` shows it as text, notebooks as a tree of operators.

    ``document`` is the plan as EXPLAIN (FORMAT JSON) gives it. A plan that was run (``analyze``)
    has the rows and times of its operators, and the longest ones are marked.
    """

    def __init__(self, document: Any) -> None:
        self.document = document[0] if isinstance(document, list) else document

    @property
    def root(self) -> dict[str, Any]:
        """The operator that gives the result; those that it takes rows from are its ``Plans``."""
        root: dict[str, Any] = self.document["Plan"]
        return root

    def operators(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """All operators with their depth, each before those that it takes rows from."""
        # Not by recursion: plans of long UNIONs are deep.
        left = [(0, self.root)]
        while left:
            depth, node = left.pop()
            yield depth, node
            left += [(depth + 1, child) for child in reversed(node.get("Plans", []))]

    def _summary(self) -> str:
        times = (("Planning Time", "planned in"), ("Execution Time", "run in"))
        return ", ".join(f"{what} {self.document[key]:g} ms" for key, what in times if key in self.document)

    def __str__(self) -> str:
        lines = []
        for depth, node in self.operators():
            details = node.get("Details")
            line = "  " * depth + node["Node Type"] + (f": {details}" if details else "")
            figures = _figures(node)
            lines.append(f"{line} ({figures})" if figures else line)
        summary = self._summary()
        return "\n".join(lines + ([f"({summary})"] if summary else []))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        operators = list(self.operators())
        longest = max((_time(node) for _, node in operators), default=0.0)
        rows = []
        for depth, node in operators:
            details = str(node.get("Details") or "")
            short = details if len(details) <= _DETAILS else details[: _DETAILS - 1] + "…"
            share = _time(node) / longest if longest else 0.0
            bar = (
                f'<div style="width:{100 * share:.0f}px;height:8px;background:#e0703c;display:inline-block"></div>'
                if longest
                else ""
            )
            rows.append(
                f'<div style="margin-left:{20 * min(depth, 40)}px;padding:2px 0 2px 8px;border-left:2px solid #2c8fe0">'
                f"<b>{html.escape(str(node['Node Type']))}</b> "
                f'<span title="{html.escape(details, quote=True)}" style="opacity:.75">{html.escape(short)}</span> '
                f'<span style="white-space:nowrap"><i>{html.escape(_figures(node))}</i> {bar}</span></div>'
            )
        summary = self._summary()
        below = f"<p>{html.escape(summary)}</p>" if summary else ""
        return f'<div style="font-family:sans-serif;font-size:13px">{"".join(rows)}{below}</div>'


def _time(node: dict[str, Any]) -> float:
    """Milliseconds that an operator computed."""
    time = node.get("Actual Total Time", 0.0)
    return float(time) if isinstance(time, (int, float)) else 0.0


def _figures(node: dict[str, Any]) -> str:
    """What an operator that has run gave, and how long it computed."""
    figures = []
    if "Actual Rows" in node:
        figures.append(f"{node['Actual Rows']:,} rows")
    if "Actual Total Time" in node:
        figures.append(f"{_time(node):,.3g} ms")
    return ", ".join(figures)


def of_text(text: Any) -> Plan:
    """The plan of what EXPLAIN (FORMAT JSON) gives."""
    import json

    return Plan(json.loads(text) if isinstance(text, str) else text)
