"""A harness that judges, judged itself: rules undone in real nodes, and whether it notices."""
