"""The scenes, one a file, each with a SCENE."""
