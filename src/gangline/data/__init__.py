"""Files of a training data set, resolved and by digest."""
