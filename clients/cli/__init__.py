"""The commands of `ottla` that speak to a cluster."""
