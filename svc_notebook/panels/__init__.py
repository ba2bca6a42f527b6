"""The chat panel: a conversation in the notebook, as one widget."""
