"""What lies below the log: files, the state store, and the faults that stand in for them."""
