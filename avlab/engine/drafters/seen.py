"""Token sequences seen before, in which the end of a text is found again: what suffix decoding looks in.

A suffix tree of bounded depth answers the same questions in memory that grows with its depth. Here the places of every
token, and of every pair of tokens, are kept, and matches are followed from there.
"""

from collections import deque

MOST_PLACES = 64  # of one token or pair, the newest; chosen here, so that no step takes long
Place = tuple[int, int]  # text, and where in it


class SeenTexts:
    """Texts that grow, and where each pair of tokens stands in them. single: single tokens too."""

    def __init__(self, single: bool):
        self.single = single
        self.texts: dict[int, list[int]] = {}
        self._places: dict[tuple[int, ...], deque[Place]] = {}

    def add(self, number: int, tokens: list[int]) -> None:
        """Go on with this text."""
        text = self.texts.setdefault(number, [])
        for token in tokens:
            text.append(token)
            at = len(text) - 1
            for key in self._keys(text, at):
                self._places.setdefault(key, deque(maxlen=MOST_PLACES)).append((number, at))

    def remove(self, number: int) -> None:
        """Forget this text."""
        text = self.texts.pop(number)
        for key in {key for at in range(len(text)) for key in self._keys(text, at)}:
            if left := [place for place in self._places.get(key, ()) if place[0] != number]:
                self._places[key] = deque(left, maxlen=MOST_PLACES)
            else:
                self._places.pop(key, None)

    def _keys(self, text: list[int], at: int) -> list[tuple[int, ...]]:
        keys: list[tuple[int, ...]] = [(text[at - 1], text[at])] if at else []
        return [*keys, (text[at],)] if self.single else keys

    def ends(self, pattern: list[int], n: int) -> list[tuple[Place, int]]:
        """Where the last tokens of the pattern stand before something else, and how many of them agree there.

        n: how many must, 1 or 2; 1 only where single tokens are kept.
        """
        found = []
        for number, at in self._places.get(tuple(pattern[-n:]), ()):
            text = self.texts[number]
            if at + 1 < len(text):
                length, most = n, min(len(pattern), at + 1)
                while length < most and text[at - length] == pattern[-1 - length]:
                    length += 1
                found.append(((number, at), length))
        return found
