"""The options of a database in the query of a URL, for SQLAlchemy and Ibis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def _flag(text: str) -> bool:
    return {"true": True, "false": False, "1": True, "0": False}[text.lower()]


_READERS: dict[str, Callable[[str], Any]] = {
    "durability": str,
    "memory_limit": int,
    "threads": int,
    "read_only": _flag,
}


def options(query: Mapping[str, Any]) -> dict[str, Any]:
    """Options as ``seracdb.connect`` takes them. Raises ValueError for what is none."""
    found = {}
    for name, text in query.items():
        if name not in _READERS:
            raise ValueError(f"SeracDB has no option {name!r}: there are {', '.join(_READERS)}")
        try:
            found[name] = _READERS[name](text)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{text!r} is no value of the option {name!r}") from None
    return found
