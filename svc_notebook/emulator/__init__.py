"""The service, offline: an independent reading of its document."""
