"""Who says what a completion is worth: from its text to rows that every later stage reads, and to rewards."""
