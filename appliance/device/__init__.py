"""The box as a device on a serial line, and the bench that provisions it."""
