"""Display of replies and progress, as safe HTML or as text for a terminal."""
