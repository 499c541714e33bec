"""Commands for topics, groups and messages of any cluster."""
