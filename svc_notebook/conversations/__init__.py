"""Named conversations: their turns, their requests, and how they are exported."""
