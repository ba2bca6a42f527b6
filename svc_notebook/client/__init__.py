"""Sockets and time."""
