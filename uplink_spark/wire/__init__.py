"""What both ends of the uplink share: frames, links, TLS, the format of a piece."""
