"""Who may connect and ask for what."""
