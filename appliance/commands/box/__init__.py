"""Commands for one box."""
