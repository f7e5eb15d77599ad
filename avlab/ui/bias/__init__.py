"""The parts of the Sampling bias page, one file each; none needs a worker but the audit."""
