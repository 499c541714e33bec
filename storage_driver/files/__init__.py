"""Access to the disk."""
