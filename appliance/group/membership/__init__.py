"""Who belongs to a group, and how that changes one step at a time."""
