"""Transactions over three real nodes, with clients that nobody here wrote."""
