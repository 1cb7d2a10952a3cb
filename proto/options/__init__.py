"""Options: one row each, and everything that is read from the rows."""
