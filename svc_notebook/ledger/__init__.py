"""The store of exchanges and its frames."""
