"""Connections between the members of a group: frames, TLS, the port, who dials whom."""
