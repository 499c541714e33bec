"""Consensus of a group of boxes: Raft over byte ranges of the CommitLog, sans I/O."""
