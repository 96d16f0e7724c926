"""Topics for operators: lists, descriptions and bounded reads."""
