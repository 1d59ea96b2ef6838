"""What is wrong with a run, from its history: a list of symptoms, each a function, and the findings they yield."""
