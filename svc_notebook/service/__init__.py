"""What the service document says, as data."""
