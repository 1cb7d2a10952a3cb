"""Scripts that measure: what this machine can do, and what the log makes of it."""
