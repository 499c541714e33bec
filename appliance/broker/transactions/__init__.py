"""Half messages, their outcome, and the checks of undecided ones."""
