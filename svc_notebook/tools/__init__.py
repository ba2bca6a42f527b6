"""Tools: Python functions the model may call, their schemas, calls and results."""
