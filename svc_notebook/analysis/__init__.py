"""Statistics of replies: pure functions from a frame of replies to a result."""
