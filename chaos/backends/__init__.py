"""Ways to run a cluster so that it can be broken."""
