"""What runs at the gateway: admits boxes, checks and lands their pieces, deletes old packs."""
