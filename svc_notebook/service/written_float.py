"""A number that keeps the digits with which it was written."""


class WrittenFloat(float):
    """A float with the text it was read from.

    A float alone forgets digits that a Decimal has, such as the last zero of 0.10.
    """

    def __init__(self, text: str) -> None:
        self.text = text
