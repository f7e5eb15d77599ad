"""The mathematics of adaptive verification: arrays in, arrays out; numpy only, no input or output."""
