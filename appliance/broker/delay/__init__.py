"""Messages that are delivered later: delay levels, timers, recall."""
