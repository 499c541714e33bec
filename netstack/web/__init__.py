"""What people and scrapers look at over HTTP."""
