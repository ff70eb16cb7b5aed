"""Profiles of training jobs; see doc/profile.md."""
