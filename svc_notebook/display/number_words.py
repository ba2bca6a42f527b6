"""Numbers in words: counts with their noun, durations, sizes of files, costs."""

_MINUTES_S = 120  # shorter times are shown in seconds
_HOURS_S = 7200  # longer times are shown in hours


def count_in_words(n: float, nouns: str) -> str:
    """Return a count with its noun, given in the plural: "1 row", "1,200 replies"."""
    noun, of, rest = nouns.partition(" of ")
    if n == 1:
        noun = f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{n:,.0f} {noun}{of}{rest}"


def duration_in_words(length_s: float) -> str:
    """Return a duration in the units that people use: 90 s, 3 min 10 s, 2 h 5 min."""
    if length_s < _MINUTES_S:
        return f"{length_s:.0f} s"
    if length_s < _HOURS_S:
        return "{} min {} s".format(*divmod(round(length_s), 60))
    return "{} h {} min".format(*divmod(round(length_s / 60), 60))


def bytes_in_words(n_bytes: float) -> str:
    """Return a number of bytes in the unit that fits: 12 kB, 3 MB, 1.5 GB."""
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1000:  # noqa: PLR2004 - as the units say
            return f"{n_bytes:.0f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"


def cost_in_words(cost: float) -> str:
    """Return a cost without an exponent: 0.0000628, 0.48, 12,345.68.

    It is to the hundredth, or with three digits if it is smaller than 1.
    """
    exponent = int(f"{cost:.2e}".partition("e")[2] or 0)  # inf and nan have none
    text = f"{cost:,.{max(2, 2 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
