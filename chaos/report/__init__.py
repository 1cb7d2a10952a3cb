"""What a run was, for people and for programs: one page, and the same as JSON and JUnit."""
