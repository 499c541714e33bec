"""Replication of the log between a master and its slaves, as Apache's brokers do it."""
