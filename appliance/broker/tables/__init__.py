"""The state that the subjects share: topics, groups, clients, offsets, parked pulls."""
