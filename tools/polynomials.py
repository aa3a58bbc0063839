#!/usr/bin/env python3
"""Prints the polynomials of runtime/elementary.cpp, with their errors (needs mpmath).

A polynomial interpolates f at the Chebyshev points of the interval. For functions as smooth as these
its error is within a factor of two of the best one's. The error is printed for the coefficients rounded
to double, relative to the whole function: |weight (f - P)|.
"""
import argparse
import signal

import mpmath
from mpmath import mpf

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line

mpmath.mp.prec = 240


def power_series(term):
    """sum of term(k) t^k from k = 0 on: near 0 the closed forms would cancel."""
    return lambda t: mpmath.fsum(term(k) * t**k for k in range(50))


def show(name, f, weight, low, high, degree):
    middle, half = (high + low) / 2, (high - low) / 2
    points = [middle + half * mpmath.cos(mpmath.pi * (2 * i + 1) / (2 * degree + 2))
              for i in range(degree + 1)]
    powers = mpmath.matrix([[x**k for k in range(degree + 1)] for x in points])
    solution = mpmath.lu_solve(powers, mpmath.matrix([f(x) for x in points]))
    coefficients = [float(c) for c in solution]
    grid = [low + (high - low) * mpf(i) / 400 for i in range(401)]
    error = max(abs(weight(x) * (f(x) - mpmath.polyval(coefficients[::-1], x))) for x in grid)
    print(f"{name}, error 2^{float(mpmath.log(error, 2)):.1f}")
    for c in coefficients:
        print(f"    {c.hex()},")


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    # The intervals are a little wider than those of the reduced arguments.
    r = mpf("0.347")
    show("e^r = 1 + r + r^2 / 2 + r^3 P(r)", power_series(lambda k: 1 / mpmath.factorial(k + 3)),
         lambda r: r**3 / mpmath.exp(r), -r, r, 9)
    third = mpf(float.fromhex("0x1.554p-2"))
    show("atanh(s) = s + third s^3 + s^3 P(s^2)",
         lambda t: power_series(lambda k: mpf(1) / (2 * k + 3))(t) - third,
         lambda t: t, mpf(0), mpf("0.0295"), 9)
    sixth = mpf(float.fromhex("0x1.554p-3"))
    show("sin(r) = r - sixth r^3 + r^3 P(r^2)",
         lambda t: power_series(lambda k: (-1)**(k + 1) / mpmath.factorial(2 * k + 3))(t) + sixth,
         lambda t: t, mpf(0), mpf("0.617"), 7)
    show("cos(r) = 1 - r^2 / 2 + r^4 P(r^2)",
         power_series(lambda k: (-1)**k / mpmath.factorial(2 * k + 4)),
         lambda t: t**2 / mpmath.cos(mpmath.sqrt(t)), mpf(0), mpf("0.617"), 6)


if __name__ == "__main__":
    main()
