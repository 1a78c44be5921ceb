# Compares pairs of formulas. Standard input is a JSON list of pairs of trees,
# each a list that begins with an operator; standard output is one line: how it
# compared, and for each pair 1 (equal), 0 (not), or ? (undecided).
#
# A tree holds numbers, names and known operators; nothing in it is ever
# evaluated as text. Two formulas are equal when they have the same values at
# random points, drawn from the input so that nobody can choose a formula that
# agrees at those points and nowhere else.

import cmath
import json
import math
import random
import sys
from fractions import Fraction

try:
    import sympy
except ImportError:
    sympy = None

POINTS, TRIES = 5, 16
MOST_EXPONENT, MOST_BITS, MOST_FACTOR = 10_000, 200_000, 2_000
DIGITS = 60


class Undecided(Exception):
    """The formula is beyond the bounds of a job."""


def names(tree, found):
    if tree[0] == "sym":
        if tree[1] not in ("pi", "e", "i"):
            found.add(tree[1])
    elif tree[0] != "num":
        for part in tree[1:]:
            names(part, found)
    return found


def bound(base, exponent):
    """Refuses powers of rational numbers that would not fit."""
    if abs(exponent) > MOST_EXPONENT:
        raise Undecided
    size = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if size * abs(exponent) > MOST_BITS:
        raise Undecided


class Exact:
    """Values as fractions, and as complex numbers where they are irrational."""

    name = "fractions"

    def number(self, text):
        return Fraction(text)

    def symbol(self, name, point):
        if name in point:
            return point[name]
        self.name = "float"
        return {"pi": math.pi, "e": math.e, "i": 1j}[name]

    def power(self, base, exponent):
        if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
            bound(base, exponent)
            return base ** int(exponent)
        self.name = "float"
        return complex(base) ** complex(exponent)

    def call(self, name, args):
        if name == "%":
            return args[0] / 100
        if name == "abs":
            return abs(args[0])
        if name in ("factorial", "binomial"):
            if any(not isinstance(a, Fraction) or a.denominator != 1 or not 0 <= a <= MOST_FACTOR for a in args):
                raise Undecided
            f = math.factorial if name == "factorial" else math.comb
            return Fraction(f(*map(int, args)))
        self.name = "float"
        x = complex(args[0])
        if name in ("cot", "sec", "csc"):
            return 1 / {"cot": cmath.tan, "sec": cmath.cos, "csc": cmath.sin}[name](x)
        known = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan"}
        return getattr(cmath, known.get(name, name))(x)

    def same(self, a, b):
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a == b
        a, b = complex(a), complex(b)
        if not (cmath.isfinite(a) and cmath.isfinite(b)):
            raise ValueError
        apart, size = abs(a - b), max(abs(a), abs(b), 1e-3)
        if 1e-12 * size < apart < 1e-9 * size:
            raise Undecided  # rounding, or a number cut short
        return apart <= 1e-12 * size


class Algebra:
    """Values as sympy has them, to many digits."""

    name = "sympy"

    def number(self, text):
        return sympy.Rational(text)

    def symbol(self, name, point):
        if name in point:
            return sympy.Rational(point[name].numerator, point[name].denominator)
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}[name]

    def power(self, base, exponent):
        if exponent.is_Rational:
            if base.is_Rational:
                bound(Fraction(int(base.p), int(base.q)), Fraction(int(exponent.p), int(exponent.q)))
            elif abs(exponent) > MOST_EXPONENT:
                raise Undecided
        return base**exponent

    def call(self, name, args):
        if name == "%":
            return args[0] / 100
        if name in ("factorial", "binomial") and any(a.is_Rational and abs(a) > MOST_FACTOR for a in args):
            raise Undecided
        known = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "abs": "Abs"}
        return getattr(sympy, known.get(name, name))(*args)

    def same(self, a, b):
        if a.is_Rational and b.is_Rational:
            return a == b
        x, y = sympy.N(a, DIGITS), sympy.N(b, DIGITS)
        if not (x.is_finite and y.is_finite):
            raise ValueError
        # What is zero comes out as a number of this size at most.
        size = max(abs(x), abs(y), sympy.Float("1e-10", DIGITS))
        return bool(abs(x - y) <= sympy.Float("1e-40", DIGITS) * size)


FUNCTIONS = {
    "%", "abs", "factorial", "binomial", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos",
    "arctan", "sinh", "cosh", "tanh", "ln", "exp",
}


def value(tree, point, kind):
    op = tree[0]
    if op == "num":
        return kind.number(tree[1])
    if op == "sym":
        return kind.symbol(tree[1], point)
    args = [value(part, point, kind) for part in tree[1:]]
    if op == "+":
        return sum(args[1:], args[0])
    if op == "*":
        return math.prod(args[1:], start=args[0])
    if op == "^":
        return kind.power(*args)
    if op in FUNCTIONS:
        return kind.call(op, args)
    raise Undecided


def compare(a, b, kind, rng):
    """Tells whether a and b agree; a point where one has no value counts for nothing."""
    free = sorted(names(a, names(b, set())))
    wanted = POINTS if free else 1
    for _ in range(TRIES if free else 1):
        point = {n: Fraction(rng.randint(-(10**6), 10**6), rng.randint(10**5, 10**6)) for n in free}
        try:
            if not kind.same(value(a, point, kind), value(b, point, kind)):
                return "0"
        except (ValueError, ZeroDivisionError, OverflowError, TypeError, AttributeError):
            continue
        wanted -= 1
        if wanted == 0:
            return "1"
    return "?"


def main():
    data = sys.stdin.buffer.read()
    sys.setrecursionlimit(10_000)
    rng = random.Random(data)
    kind = Exact() if sympy is None else Algebra()
    signs = ""
    for a, b in json.loads(data):
        try:
            signs += compare(a, b, kind, rng)
        except (Undecided, RecursionError, MemoryError, NotImplementedError):
            signs += "?"
    print(kind.name, signs)


main()
