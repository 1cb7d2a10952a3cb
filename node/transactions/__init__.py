"""Transactions: who holds a transactional id, what belongs to its transaction, how it ends."""
