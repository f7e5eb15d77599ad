"""When trimming bends the output: exactly, by sampling, in scenes, and on the engine. One subject, one folder."""
