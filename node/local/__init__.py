"""A cluster of processes on this machine, for people who try things out."""
