"""Tokens, the budget and, later, conversations."""
