"""One thin line through every room: warm up, collect, judge, reflect, train, and ask again."""
