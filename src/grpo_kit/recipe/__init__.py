"""A YAML file, checked: keys, types, overrides."""
