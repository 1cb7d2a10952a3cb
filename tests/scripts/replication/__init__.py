"""Stories of leaders and followers, and the small world in which they are played."""
