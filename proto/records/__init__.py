"""Record batch v2: the bytes on the wire, which are the bytes on disk."""
