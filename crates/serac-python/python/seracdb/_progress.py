"""Bars for statements that take long, in terminals and notebooks."""

from __future__ import annotations

import sys
import time
import weakref
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading

    from seracdb import _seracdb

#: Statements that take longer have a bar.
PATIENCE_SECONDS = 2.0
#: The time between two looks at the connections, and between two pictures.
_TICK_SECONDS = 0.2
_WIDTH = 30

#: (what is done, all of it, what it is); all is 0 if it is not known.
_Input = tuple[int, int, str]


def is_wanted() -> bool:
    """Whether bars are shown if nobody has said: in a terminal, and in a notebook."""
    return _is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _is_notebook() -> bool:
    # Only a notebook's process has imported it already.
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    shell = ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def text_of(seconds: float, done: _Input, share: float) -> str:
    """A bar as text. ``share`` is what was shown before: a bar does not go back."""
    amount, total, what = done
    clock = f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
    if total:
        full = round(share * _WIDTH)
        return f"{'█' * full}{'·' * (_WIDTH - full)} {100 * share:3.0f} % {clock}"
    count = f" {amount:,} {what}" if amount else ""
    return f"running {clock}{count}"


class _Terminal:
    """A line of standard error that is written again and again."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, text: str, share: float) -> None:
        sys.stderr.write("\r" + text.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(text)

    def clear(self) -> None:
        sys.stderr.write("\r" + " " * self._shown + "\r")
        sys.stderr.flush()


class _Notebook:
    """An output of a notebook's cell that is replaced again and again."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, share: float) -> None:
        import IPython.display as shown

        value = f' value="{share:.3f}"' if share else ""
        page: Any = f"<progress max=\"1\"{value}></progress> <code>{text.lstrip('█· ')}</code>"
        page = shown.HTML(page)  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = shown.display(page, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(page)

    def clear(self) -> None:
        import IPython.display as shown

        if self._handle is not None:
            self._handle.update(shown.HTML(""))  # type: ignore[no-untyped-call]


class _Watched:
    """What was seen of a connection."""

    def __init__(self) -> None:
        self.computed = -1
        self.seconds = 0.0
        self.share = 0.0
        self.bar: _Terminal | _Notebook | None = None

    def look(self, connection: _seracdb.Connection) -> None:
        """Shows or removes the bar of a connection."""
        seen = connection._progress()
        if seen is None:
            return
        seconds, is_computing, computed, done = seen
        # The rows of a long query are computed a batch at a time: in between it rests for moments.
        is_busy = is_computing or computed != self.computed
        if seconds < self.seconds:
            # Another statement.
            self.share = 0.0
        self.computed, self.seconds = computed, seconds
        if not is_busy or seconds < PATIENCE_SECONDS:
            self.hide()
            return
        if done[1]:
            # Never quite full: what comes after the last block is not known.
            self.share = max(self.share, min(done[0] / done[1], 0.99))
        if self.bar is None:
            self.bar = _Notebook() if _is_notebook() else _Terminal()
        self.bar.show(text_of(seconds, done, self.share), self.share)

    def hide(self) -> None:
        """Removes the bar."""
        if self.bar is not None:
            self.bar.clear()
            self.bar = None


_lock = allocate_lock()
_watched: weakref.WeakKeyDictionary[Any, _Watched] = weakref.WeakKeyDictionary()
_thread: threading.Thread | None = None


def watch(connection: _seracdb.Connection) -> None:
    """Shows bars for the statements of a connection from now on."""
    # Not at the head: most programs import the package without bars, in a few milliseconds.
    import threading

    global _thread
    with _lock:
        _watched[connection] = _Watched()
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="seracdb-progress", daemon=True)
            _thread.start()


def _run() -> None:
    """Looks at the connections until there are none left."""
    global _thread
    while True:
        time.sleep(_TICK_SECONDS)
        with _lock:
            connections = [(at, seen) for at, seen in _watched.items() if not at.closed]
            if not connections:
                for seen in _watched.values():
                    seen.hide()
                _thread = None
                return
        for connection, seen in connections:
            try:
                seen.look(connection)
            except Exception:
                # Standard error is closed, or the notebook has gone: nobody looks at bars.
                with _lock:
                    _watched.pop(connection, None)
        # No connection is kept from going.
        del connections
        connection = seen = None  # type: ignore[assignment]
