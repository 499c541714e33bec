"""Recovery: from any bytes in the folder to a store that serves."""
