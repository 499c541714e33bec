"""Access control: accounts, permissions, the resources of a request, replayed signatures."""
