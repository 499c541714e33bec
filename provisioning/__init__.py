"""Sets up boxes over a serial line."""
