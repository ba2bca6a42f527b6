"""Grids of cells, their runs and frames."""
