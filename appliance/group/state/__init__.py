"""The tables of a box on their way through the log: records, snapshots, who applies them."""
