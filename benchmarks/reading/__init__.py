"""Files of many kinds, and what a person reads in them."""
