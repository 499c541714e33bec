"""Writes a landing zone, on a disk or in a bucket: packs, manifest, what is kept beside them, what may leave."""
