"""POP: messages that are taken for a time, acknowledged one by one, and come again when the time is over."""
