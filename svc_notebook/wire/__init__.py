"""Bytes to types and back: no sockets, no clock."""
