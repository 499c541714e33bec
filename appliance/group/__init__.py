"""Boxes that hold one log: who leads, what the rest of a box does when that changes."""
