"""Text that grows, and Markdown made safe; knows nothing of the service."""
