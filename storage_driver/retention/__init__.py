"""What may go of the log and its queues, the space that there is, and what takes it."""
