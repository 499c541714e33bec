"""What producers send: checks, batches, duplicates, replies."""
