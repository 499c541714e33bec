"""What consumers ask: pulls, membership, queue locks, offsets, retries."""
