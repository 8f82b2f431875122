"""Errors a user can act on: one line that names what was found and what to do. The command line turns them into exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something about the input, configuration or machine that the user can put right.

    The message is one line: what was expected, what was found (file, key, shape) and the next step to take.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``"did you mean 'x'?"`` for the closest of ``known``, or a list of what exists when nothing is close."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
