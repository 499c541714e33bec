"""From the log to pieces: bytes are walked, checked, cut and packed, and read again where a piece is refused."""
