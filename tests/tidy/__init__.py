"""The house rules, as tests. Each failure says what to do about it."""
