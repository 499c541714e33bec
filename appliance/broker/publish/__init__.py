"""Sends of producers: checks, batches, duplicates, replies."""
