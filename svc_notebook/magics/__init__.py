"""The cell magic: options, help and the shell's edge."""
