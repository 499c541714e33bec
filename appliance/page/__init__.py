"""The status page: what an operator wants to know within a minute, on a phone as well as on a desk."""
