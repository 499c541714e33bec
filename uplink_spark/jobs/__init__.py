"""Spark jobs over the landing zone."""
