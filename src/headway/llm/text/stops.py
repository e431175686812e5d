"""Strings that end an output, wherever its tokens divide them.

Held back is exactly the longest end of the text that is a proper beginning of any of them: that much may still turn out
to be cut, and nothing else. Each string is followed by the automaton of Knuth, Morris and Pratt, so a character costs
the same however long the strings are. The match that is complete first wins; of those complete at once, the one that
began first; of equal strings the first in the list.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Of one output: it begins at its first character, so that nothing of a prompt ever matches.

    matched: the string that ended it.
    """

    __slots__ = ("_borders", "_first", "_held", "_include", "_states", "_stops", "matched")

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        """include: the text ends with the string that matched, instead of before it. ValueError for an empty one."""
        if "" in stops:
            raise ValueError("a stop string is empty")
        self._stops = tuple(stops)
        self._borders = [_borders(stop) for stop in stops]
        self._states = [0] * len(stops)
        self._first = "".join(dict.fromkeys(stop[0] for stop in stops))
        self._held = ""
        self._include = include
        self.matched: str | None = None

    @property
    def held(self) -> int:
        """Characters."""
        return len(self._held)

    def feed(self, text: str, watch: bool = True) -> str:
        """The text that no string can cut any more. watch: False while the output must still go on; what comes then is
        no part of a match, nor is what was held before it. Once a string has matched, nothing comes of anything."""
        if self.matched is not None:
            return ""
        if not watch:
            return self.finish() + text
        if not self._held and not any(letter in text for letter in self._first):
            return text
        whole = self._held + text
        for place, letter in enumerate(text, len(self._held) + 1):
            found = self._step(letter)
            if found is not None:
                self.matched = found
                self._held = ""
                return whole[:place] if self._include else whole[: place - len(found)]
        hold = max(self._states, default=0)
        self._held = whole[len(whole) - hold :]
        return whole[: len(whole) - hold]

    def finish(self) -> str:
        """Nothing more comes: what was held."""
        held, self._held = self._held, ""
        self._states = [0] * len(self._stops)
        return held

    def _step(self, letter: str) -> str | None:
        """One character: the string that is complete with it; of several the longest, which began first."""
        found: str | None = None
        for number, stop in enumerate(self._stops):
            borders = self._borders[number]
            state = self._states[number]
            while state and stop[state] != letter:
                state = borders[state - 1]
            state += stop[state] == letter
            self._states[number] = state
            if state == len(stop) and (found is None or len(stop) > len(found)):
                found = stop
        return found


def _borders(stop: str) -> list[int]:
    """For each length, from 1: the longest proper beginning of that much that is also its end."""
    borders = [0] * len(stop)
    state = 0
    for place in range(1, len(stop)):
        while state and stop[place] != stop[state]:
            state = borders[state - 1]
        state += stop[place] == stop[state]
        borders[place] = state
    return borders
