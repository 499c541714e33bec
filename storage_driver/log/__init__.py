"""The CommitLog."""
