"""From frames of replies to decisions: pure functions of the replies' columns."""
