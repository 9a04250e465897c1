"""The cases, by subject. `antiphon.check.catalogue` puts them in order."""
