"""This worker in the group: membership, and the strategy by which work is dealt out anew."""
