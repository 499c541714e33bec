"""Who may do what: accounts, permissions, the resources of a request, replayed signatures."""
