"""How replies and progress are shown: as safe HTML, or as text for a terminal."""
