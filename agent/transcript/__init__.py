"""What a run is written in and told with: questions, events, the tagged text and its words."""
