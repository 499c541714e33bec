"""The settings of a box."""
