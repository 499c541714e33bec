"""What tools ask: topics, groups, progress, accounts, statistics."""
