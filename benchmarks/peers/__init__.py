"""What a question costs beyond its calls: ours, a bare client that makes them, and two peers."""
