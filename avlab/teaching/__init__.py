"""Cases that show when trimming bends the output: what a reader types, and ready-made scenes."""
