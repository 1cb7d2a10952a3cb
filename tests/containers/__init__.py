"""The cluster of `compose/`, in real containers."""
