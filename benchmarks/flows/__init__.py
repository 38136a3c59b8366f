"""What may leave a run that reads private and public sources together."""
