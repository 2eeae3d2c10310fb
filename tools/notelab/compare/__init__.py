"""A learner's notes beside a solution, by the lines that both cite."""
