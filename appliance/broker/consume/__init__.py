"""Requests of consumers: pulls, membership, queue locks, offsets, retries."""
