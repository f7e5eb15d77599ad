"""As much of Prometheus's language as the shipped rules and dashboard speak, over made-up series.

A series is its values, one a minute. Where promtool is there, the same series are put to it too.
"""

import math
import operator
import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<string>\"[^\"]*\")|(?P<name>[a-zA-Z_:][\w:]*)|(?P<dollar>\$\w+)"
    r"|(?P<sign>=~|!~|!=|<=|>=|==|[-+*/(){}\[\],<>=]))"
)
MINUTES = {"s": 1 / 60, "m": 1, "h": 60}
ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.nan,
}
COMPARISONS = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
LEVELS = (("or",), ("and",), tuple(COMPARISONS), ("+", "-"), ("*", "/"))
CALLS = ("rate", "increase", "abs", "histogram_quantile")


@dataclass(frozen=True)
class Selector:
    """A metric that an expression names. matchers: (label, operator, value). window: minutes, 0 for none."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    window: float


class Expression:
    """A parsed expression. selectors: all that it names; grouping: labels of its aggregations."""

    def __init__(self, text: str):
        self._tokens = list(self._split(text))
        self._at = 0
        self.selectors: list[Selector] = []
        self.grouping: set[str] = set()
        self.tree = self._level(0)
        assert self._at == len(self._tokens), f"what is {self._tokens[self._at :]}?"

    @staticmethod
    def _split(text):
        at = 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            assert match, f"what is {text[at : at + 20]!r}?"
            at = match.end()
            yield match.group().strip()

    def _peek(self):
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted=None):
        token = self._peek()
        assert wanted in (None, token), f"{token!r} is no {wanted!r}"
        self._at += 1
        return token

    def _level(self, level):
        if level == len(LEVELS):
            return self._atom()
        left = self._level(level + 1)
        while self._peek() in LEVELS[level]:
            left = (self._take(), left, self._level(level + 1))
        return left

    def _atom(self):
        token = self._take()
        if token == "(":
            inner = self._level(0)
            self._take(")")
            return inner
        if re.fullmatch(r"\d+(\.\d+)?", token):
            return float(token)
        if token == "sum":
            self._take("without")
            labels = self._labels()
            self.grouping |= labels
            self._take("(")
            inner = self._level(0)
            self._take(")")
            return ("sum", labels, inner)
        if self._peek() == "(" and token in CALLS:
            self._take("(")
            arguments = [self._level(0)]
            while self._peek() == ",":
                self._take()
                arguments.append(self._level(0))
            self._take(")")
            return (token, *arguments)
        return self._selector(token)

    def _labels(self):
        self._take("(")
        found = {self._take()}
        while self._peek() == ",":
            self._take()
            found.add(self._take())
        self._take(")")
        return frozenset(found)

    def _selector(self, name):
        assert re.fullmatch(r"[a-zA-Z_:][\w:]*", name), f"{name!r} is no metric"
        matchers, window = [], 0.0
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                matchers.append((self._take(), self._take(), self._take().strip('"')))
                if self._peek() == ",":
                    self._take()
            self._take("}")
        if self._peek() == "[":
            self._take()
            number = self._take()
            window = 5.0 if number.startswith("$") else float(number) * MINUTES[self._take()]
            self._take("]")
        selector = Selector(name, tuple(matchers), window)
        self.selectors.append(selector)
        return selector

    def at(self, minute, series):
        """The value: a number, or by label set. series: {(name, labels): [value, ...]}, one a minute."""
        return _value(self.tree, minute, series)


def _value(tree, minute, series):
    if isinstance(tree, float):
        return tree
    if isinstance(tree, Selector):
        return {labels: values[minute] for labels, values in _chosen(tree, series)}
    kind, *parts = tree
    if kind in ("rate", "increase"):
        window, found = int(parts[0].window), {}
        for labels, values in _chosen(parts[0], series):
            grown = values[minute] - values[max(0, minute - window)]
            found[labels] = grown / (60 * window if kind == "rate" else 1)
        return found
    if kind == "abs":
        return {labels: abs(value) for labels, value in _value(parts[0], minute, series).items()}
    if kind == "sum":
        sums = {}
        for labels, value in _value(parts[1], minute, series).items():
            rest = frozenset(each for each in labels if each[0] not in parts[0])
            sums[rest] = sums.get(rest, 0.0) + value
        return sums
    if kind == "histogram_quantile":
        return _value(parts[1], minute, series)
    left, right = (_value(each, minute, series) for each in parts)
    if kind == "and":
        return {labels: value for labels, value in left.items() if labels in right}
    if kind == "or":
        return right | left
    return _binary(kind, left, right)


def _binary(kind, left, right):
    compares = kind in COMPARISONS
    apply = COMPARISONS.get(kind) or ARITHMETIC[kind]
    if isinstance(left, float) and isinstance(right, float):
        assert not compares
        return apply(left, right)
    pairs = (
        {labels: (value, right) for labels, value in left.items()} if isinstance(right, float)
        else {labels: (left, value) for labels, value in right.items()} if isinstance(left, float)
        else {labels: (value, right[labels]) for labels, value in left.items() if labels in right}
    )  # fmt: skip
    if compares:
        return {labels: a for labels, (a, b) in pairs.items() if apply(a, b)}
    return {labels: apply(a, b) for labels, (a, b) in pairs.items()}


def _chosen(selector, series):
    for (name, labels), values in series.items():
        mine = dict(labels)
        if name == selector.name and all(
            _fits(mine.get(label, ""), *rest) for label, *rest in selector.matchers
        ):
            yield labels, values


def _fits(value, sign, wanted):
    if sign in ("=~", "!~"):
        fits = wanted.startswith("$") or re.fullmatch(wanted, value) is not None
        return fits == (sign == "=~")
    return (value == wanted) == (sign == "=")
