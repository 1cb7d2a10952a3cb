"""The commands of `ottla` that look at a node, its options and its files."""
