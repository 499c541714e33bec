"""An address that moves with the leadership."""
