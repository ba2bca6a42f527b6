"""Conversations, the budget of a request, and rounds of tool calls."""
