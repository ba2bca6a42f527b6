"""Grids of trials, their runs and frames."""
