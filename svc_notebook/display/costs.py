"""Costs in words, without an exponent: 0.0000628, 0.48, 12,345.68."""


def cost_in_words(cost: float) -> str:
    """Return a cost to the hundredth, or with three digits if it is smaller than 1."""
    exponent = int(f"{cost:.2e}".partition("e")[2] or 0)  # inf and nan have none
    text = f"{cost:,.{max(2, 2 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
