"""Members that agree on commands by Raft, without the hazards of the library that does it."""
