"""One partition's log on disk, and all the logs of a data directory."""
