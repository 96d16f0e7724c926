"""The pure core of the status store: records, their fold, and the machine that decides writes."""
