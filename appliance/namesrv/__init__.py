"""NameServer behaviour."""
