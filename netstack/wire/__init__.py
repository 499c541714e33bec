"""Bytes to commands and back. Sans I/O."""
