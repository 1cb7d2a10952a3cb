"""Who leads what: the controller quorum."""
