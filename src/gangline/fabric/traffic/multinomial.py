"""Probability that no bin gets more than so many balls, which fall at random. Pure.

P(max <= m) = K!/n^K [x^K] (sum of x^i/i! for i <= m)^n for K balls and n bins. With Poisson weights in the place of
1/i! all terms are positive and at most 1, so that nothing cancels and nothing overflows.
"""

from math import exp, fsum, lgamma, log, pi, sqrt
from operator import mul

MOST_EXACT = {True: 256, False: 512}
"""Balls up to which the power is computed term by term, by whether there are 32 bins or more."""
_WINDOW = 1e-20
"""Terms below so much of the largest are dropped at the ends."""

Terms = tuple[int, list[float]]
"""Exponent of the first, and the terms of a power series from there on."""


def probability_of_most(balls: int, *, bins: int, most: int) -> float:
    """Probability that each of `bins` bins gets at most `most` of `balls` balls.

    Exact up to 512 balls, or 256 from 32 bins on. Above, the sum of the bins is taken as nearly normal, with its
    skewness and kurtosis: the expected efficiency of a path is off by at most 2e-5 from 32 bins on, and 4e-4 from 8.

    Source:
        Levin, "A representation for multinomial cumulative distribution functions", Annals of Statistics 9 (1981).
    """
    if most >= balls:
        return 1.0
    if most * bins < balls:
        return 0.0
    mean = balls / bins
    weights = [exp(i * log(mean) - mean - lgamma(i + 1)) for i in range(most + 1)]
    density = _exact_density if balls <= MOST_EXACT[bins >= 32] else _edgeworth_density
    total = exp(balls * log(balls) - balls - lgamma(balls + 1))
    return min(1.0, max(0.0, density(weights, bins, balls) / total))


def _exact_density(weights: list[float], bins: int, balls: int) -> float:
    """Term `balls` of the `bins`-th power, by repeated squaring."""
    square, product = _trimmed(0, weights), None
    while bins > 1:
        if bins % 2:
            product = square if product is None else _multiply(product, square, balls)
        bins //= 2
        if bins == 1 and product is None:
            return _term(square, square, balls)
        square = _multiply(square, square, balls)
    return _term(product or (0, [1.0]), square, balls)


def _multiply(first: Terms, second: Terms, most: int) -> Terms:
    """Product of two series up to the exponent `most`."""
    (low, long), (start, short) = sorted((first, second), key=lambda each: -len(each[1]))
    reverse, length = short[::-1], len(short)
    products = []
    for index in range(max(1, min(len(long) + length - 1, most - low - start + 1))):
        begin, end = max(0, index - length + 1), min(len(long), index + 1)
        offset = length - 1 - index
        products.append(sum(map(mul, long[begin:end], reverse[begin + offset : end + offset])))
    return _trimmed(low + start, products)


def _term(first: Terms, second: Terms, exponent: int) -> float:
    """One term of a product."""
    (low, long), (start, short) = first, second
    begin, end = max(low, exponent - start - len(short) + 1), min(low + len(long) - 1, exponent - start)
    return fsum(long[i - low] * short[exponent - start - i] for i in range(begin, end + 1))


def _trimmed(low: int, terms: list[float]) -> Terms:
    least = max(terms) * _WINDOW
    begin = next(i for i, term in enumerate(terms) if term >= least)
    end = next(i for i in range(len(terms), 0, -1) if terms[i - 1] >= least)
    return low + begin, terms[begin:end]


def _edgeworth_density(weights: list[float], bins: int, balls: int) -> float:
    """Density of a sum of `bins` counts, each by `weights`, at `balls`; with all of their mass."""
    mass = fsum(weights)
    mean = fsum(i * weight for i, weight in enumerate(weights)) / mass
    variance, third, fourth = (
        fsum((i - mean) ** power * weight for i, weight in enumerate(weights)) / mass for power in (2, 3, 4)
    )
    if variance <= 0:
        return 0.0
    spread = sqrt(bins * variance)
    skew, kurtosis = third / (variance * sqrt(variance * bins)), (fourth / variance**2 - 3) / bins
    z = (balls - bins * mean) / spread
    hermite3, hermite4 = z**3 - 3 * z, z**4 - 6 * z**2 + 3
    hermite6 = z**6 - 15 * z**4 + 45 * z**2 - 15
    series = 1 + skew / 6 * hermite3 + kurtosis / 24 * hermite4 + skew**2 / 72 * hermite6
    return exp(bins * log(mass) - z**2 / 2) / sqrt(2 * pi) / spread * series
