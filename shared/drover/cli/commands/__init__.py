"""The commands of `drover`, one module for each group of them."""
