"""What the service's document says, as data.

The document describes the service's interface. It is not in this repository;
`tests/document` has a transcription of its examples and tables. Comments and docstrings
of the whole package name its sections: `(doc: Rate limits per model)`.
"""
