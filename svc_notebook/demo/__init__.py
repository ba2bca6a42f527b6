"""The demo: the quickstart notebook, run before a newcomer's eyes."""
