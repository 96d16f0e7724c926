"""The pure core of the config store: records, their fold, and the machine that decides writes."""
