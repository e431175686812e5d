"""Least squares with coefficients that are not negative."""

from __future__ import annotations

from collections.abc import Sequence

Matrix = list[list[float]]


def nnls(gram: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x >= 0 that minimises x'Gx/2 - x'b, for a positive definite G (n x n) and b (n).

    The active set method of Lawson and Hanson (1974) on the normal equations, as Bro and de Jong
    (1997) do it: coefficients enter one at a time, the one with the steepest descent first, and
    leave again when they would turn negative. Deterministic.
    """
    n = len(right)
    x = [0.0] * n
    passive: list[int] = []
    tolerance = 1e-10 * max(1e-300, *(abs(value) for value in right))
    for _ in range(4 * n):
        slope = [right[i] - sum(gram[i][j] * x[j] for j in passive) for i in range(n)]
        outside = [i for i in range(n) if i not in passive]
        entering = max(outside, key=lambda i: slope[i] / gram[i][i] ** 0.5, default=None)
        if entering is None or slope[entering] <= tolerance:
            break
        passive.append(entering)
        while True:
            solution = _solve([[gram[i][j] for j in passive] for i in passive], [right[i] for i in passive])
            if solution is None:  # what entered is a combination of what is there
                passive.remove(entering)
                return x
            if min(solution) > 0:
                x = [0.0] * n
                for i, value in zip(passive, solution, strict=True):
                    x[i] = value
                break
            step = min(
                x[i] / (x[i] - value) for i, value in zip(passive, solution, strict=True) if value <= 0 and x[i] > value
            )
            for i, value in zip(passive, solution, strict=True):
                x[i] += step * (value - x[i])
            gone = [i for i in passive if x[i] <= 1e-15 * max(x)]
            if not gone:
                gone = [min(passive, key=lambda i: x[i])]
            for i in gone:
                x[i] = 0.0
                passive.remove(i)
            if not passive:
                break
    return x


def _solve(matrix: Matrix, right: list[float]) -> list[float] | None:
    """Cholesky with scaling to a unit diagonal; None when singular."""
    n = len(right)
    scale = [matrix[i][i] ** 0.5 for i in range(n)]
    lower: Matrix = []
    for i in range(n):
        row: list[float] = []
        lower.append(row)
        for j in range(i + 1):
            rest = matrix[i][j] / scale[i] / scale[j] - sum(row[k] * lower[j][k] for k in range(j))
            if j < i:
                row.append(rest / lower[j][j])
            elif rest < 1e-12:
                return None
            else:
                row.append(rest**0.5)
    y: list[float] = []
    for i in range(n):
        y.append((right[i] / scale[i] - sum(lower[i][k] * y[k] for k in range(i))) / lower[i][i])
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (y[i] - sum(lower[k][i] * x[k] for k in range(i + 1, n))) / lower[i][i]
    return [x[i] / scale[i] for i in range(n)]
