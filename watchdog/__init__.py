"""Feeds systemd only while there is proof of work."""
