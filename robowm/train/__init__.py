"""Training without an opinion: a learner is an iterator of batches plus a loss function; everything else here is shared by all of them."""
