"""Named conversations: their turns, requests, restore, import and export."""
