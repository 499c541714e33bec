"""Commands for flashing and provisioning."""
