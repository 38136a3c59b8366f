"""On-policy training in rounds: collect with the newest policy, judge, reflect, update, again."""
