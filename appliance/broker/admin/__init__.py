"""Requests of tools: topics, groups, progress, accounts, statistics."""
