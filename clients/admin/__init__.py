"""The admin client: topics, options, groups and offsets of a cluster."""
