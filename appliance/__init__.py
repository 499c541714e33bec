"""The box: broker and NameServer behaviour, composition, command line."""
