"""Systems that are measured beside each other: each is started, looked at and ended alike."""
