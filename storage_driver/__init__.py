"""Keeps messages durable and finds them again; knows nothing of networks."""
