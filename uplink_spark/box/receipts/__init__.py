"""What the box knows of its shipping over restarts: receipts of the gateway, and losses that it declared."""
