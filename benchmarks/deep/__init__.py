"""Deep research over a made-up world, with a scripted model: what is shown, and what it costs."""
