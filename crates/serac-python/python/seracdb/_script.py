"""Scripts of SQL, taken apart into statements."""

from __future__ import annotations

import re
from typing import NamedTuple

#: What a semicolon may stand in, semicolons, and other characters. A quoted text without an end
#: goes to the end of the script.
_TOKEN = re.compile(
    r"""
      --[^\n]*
    | (?P<comment>/\*)
    | (?<![\w$])[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)
    | '(?:[^']|'')*(?:'|\Z)
    | "(?:[^"]|"")*(?:"|\Z)
    | (?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$
    | (?P<end>;)
    | [^\s]
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_COMMENT = re.compile(r"/\*|\*/")
_NO_BLANK = re.compile(r"\S")


class Statement(NamedTuple):
    """A statement and its place."""

    text: str
    #: The line at which it begins, from 1.
    line: int


def _end_of_comment(text: str, at: int) -> int | None:
    """The end of a comment, behind its first ``/*``. Comments are nested."""
    depth = 1
    for sign in _IN_COMMENT.finditer(text, at):
        depth += 1 if sign.group() == "/*" else -1
        if depth == 0:
            return sign.end()
    return None


def split(text: str) -> tuple[list[Statement], str]:
    """The complete statements of a text, without their semicolons, and the rest, which is empty if
    nothing but blanks and comments is left."""
    statements: list[Statement] = []
    start = at = 0
    line, counted = 1, 0
    is_blank = True
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if token["comment"]:
            end = _end_of_comment(text, at)
            if end is None:
                return statements, text[start:]
            at = end
        elif token["tag"] is not None:
            close = text.find(token.group(), at)
            if close < 0:
                return statements, text[start:]
            at = close + len(token.group())
            is_blank = False
        elif token["end"]:
            if not is_blank:
                begins = _begins(text, start)
                line, counted = line + text.count("\n", counted, begins), begins
                statements.append(Statement(text[begins : token.start()].rstrip(), line))
            start, is_blank = at, True
        elif not token.group().startswith("--"):
            is_blank = False
    return statements, "" if is_blank else text[start:]


def _begins(text: str, start: int) -> int:
    """Where the first text behind ``start`` begins, which there is."""
    found = _NO_BLANK.search(text, start)
    return found.start() if found else start


def all_of(text: str) -> list[Statement]:
    """All statements of a text; the last one needs no semicolon."""
    statements, rest = split(text)
    if rest:
        begins = _begins(text, len(text) - len(rest))
        statements.append(Statement(text[begins:].rstrip(), text.count("\n", 0, begins) + 1))
    return statements
