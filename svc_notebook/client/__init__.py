"""The client: sends requests within rate limits and deadlines, and retries."""
