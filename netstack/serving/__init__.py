"""Connections of a server."""
