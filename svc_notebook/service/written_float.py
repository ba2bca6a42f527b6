"""A number that keeps the digits with which it was written."""


class WrittenFloat(float):
    """A float read from a text; it equals its own text, too.

    A float alone forgets digits that a Decimal has, such as the last zero of 0.10.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # to copy it
        """Return the text, which the constructor takes."""
        return (self.text,)

    def __eq__(self, other: object) -> bool:
        """Compare as a float, or with a text."""
        return self.text == other if isinstance(other, str) else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        """Compare as `__eq__` does; that of a float would be used otherwise."""
        return not self == other

    __hash__ = float.__hash__
